"""`slipway rollback`: the files of an earlier update come back, and the next update publishes its digests again."""

from __future__ import annotations

import subprocess

import pytest

from tests.engine.project import Project

IGNORED = ".slipway\n.pulumi\n__pycache__\npip.py\n"


def git(project: Project, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(["git", *identity, *words], cwd=project.root, capture_output=True, text=True, check=True)
    return done.stdout


def commit(project: Project) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "a change")


def digests(project: Project) -> dict[str, str]:
    return {name: each["ref"].partition("@")[2] for name, each in project.outputs()["images"].items()}


@pytest.fixture
def updated(project: Project) -> Project:
    """A committed stack with two updates; the second one has another file, a file more, and another argument."""
    git(project, "init", "-q", "-b", "main")
    project.write(".gitignore", IGNORED)
    project.write("dockerfiles/link0/Dockerfile", "FROM scratch\nARG WORD\nCOPY link0/*.txt /${WORD}/\n")
    commit(project)
    project.up()
    project.write("dockerfiles/link0/file.txt", "worse\n")
    project.write("dockerfiles/link0/more.txt", "more\n")
    project.write("dockerfiles/link1/file.txt", "of an image that the stack has not\n")
    project.configure(word="two")
    commit(project)
    return project


def test_rollback_publishes_the_earlier_digest_again(updated: Project) -> None:
    first = digests(updated)
    updated.up()
    assert digests(updated) != first
    printed = updated.stacks("rollback", "t")
    assert "has the files of update 1 (commit " in printed
    files = ["dockerfiles/link0/file.txt", "dockerfiles/link0/more.txt", "stacks/Pulumi.t.yaml"]
    assert [line.strip() for line in printed.splitlines() if line.startswith("  ")] == files
    assert sorted(git(updated, "diff", "--name-only").split()) == files
    # Where the first run was killed, another one goes on.
    git(updated, "checkout", "-q", "--", files[0])
    assert f"again:\n  {files[0]}\n" in updated.stacks("rollback", "t", "1")
    commit(updated)
    updated.up()
    assert digests(updated) == first
    # And forward again, by its number.
    assert "has the files of update 2 " in updated.stacks("rollback", "t", "2")
    assert (updated.root / "dockerfiles/link0/more.txt").read_text() == "more\n"


def test_rollback_without_a_way_back_changes_nothing(updated: Project) -> None:
    def refused(*words: str) -> str:
        before = git(updated, "status", "--porcelain")
        error = updated.stacks("rollback", "t", *words, code=1)
        assert error.count("\n") == 1
        assert git(updated, "status", "--porcelain") == before
        return error

    assert "there is no update 7: its updates are 1 to 1" in refused("7")
    updated.write("dockerfiles/link0/file.txt", "not committed\n")
    assert "would lose what is not committed: dockerfiles/link0/file.txt;" in refused()
    updated.up()
    assert "update 2 is not a way back: its files differed from commit" in refused("2")
    git(updated, "checkout", "-q", "--", ".")
    updated.write("dockerfiles/link0/untracked.txt", "")
    assert "would lose what is not committed: dockerfiles/link0/untracked.txt;" in refused("1")
    (updated.root / "dockerfiles/link0/untracked.txt").unlink()
    updated.write("dockerfiles/link0/Dockerfile", "FROM scratch\nCOPY link0/gone /\n")
    updated.up(check=False)
    git(updated, "checkout", "-q", "--", ".")
    assert "update 3 is not a way back: update failed" in refused("3")
    flavor = updated.root / "stacks/flavors/chain.py"
    flavor.write_text(flavor.read_text().replace('"WORD": config.word', '"WORD": f"{config.word}!"'))
    commit(updated)
    assert "today's code builds something else than update 1 of link0 from the files of commit" in refused()


def test_rollback_of_a_new_stack_says_it_has_no_update(project: Project) -> None:
    assert "there is no update 1: it has none" in project.stacks("rollback", "t", "1", code=1)
    assert "no earlier update" in project.stacks("rollback", "t", code=1)
