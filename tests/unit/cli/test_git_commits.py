"""Commits of a repository's tags: one that is absent takes no other with it."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from cli.locking import git_commits
from cli.locking.lock_file import _Lookups, _tag_commits
from containers.errors import SlipwayError

REFS = ["refs/tags/gone", "refs/tags/v1", "refs/tags/v2"]


@pytest.fixture
def repository(tmp_path: Path) -> str:
    for words in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "x"],
        ["tag", "v1"],
        ["tag", "-am", "x", "v2"],
    ):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)
    return str(tmp_path)


def test_lock_reachable_keeps_other_tags_of_repository(repository: str) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    names = [f"{repository}#{ref}" for ref in REFS]
    lookups = _Lookups({names[0]: "1" * 40}, reachable=True, upgrade=True)
    assert lookups.ask(names, partial(git_commits.of_tags, repository, REFS)) == {
        names[0]: "1" * 40,
        names[1]: commit,
        names[2]: commit,
    }
    assert lookups.left == {names[0]: f"{repository} has no tag 'gone'"}


def test_lock_without_reachable_refuses_absent_tag(repository: str) -> None:
    names = [f"{repository}#{ref}" for ref in REFS]
    with pytest.raises(SlipwayError, match="has no tag 'gone'; `slipway lock --reachable` writes"):
        _Lookups({}, reachable=False, upgrade=True).ask(names, partial(git_commits.of_tags, repository, REFS))


def test_lock_reachable_leaves_silent_host_as_it_was(tmp_path: Path) -> None:
    names = [f"{tmp_path}#{ref}" for ref in REFS]
    lookups = _Lookups({names[1]: "1" * 40}, reachable=True, upgrade=True)
    assert lookups.ask(names, partial(git_commits.of_tags, str(tmp_path), REFS)) == {names[1]: "1" * 40}
    assert [*lookups.left] == names


def test_lock_asks_for_new_tags_alone(repository: str, tmp_path: Path) -> None:
    kept = {f"{repository}#refs/tags/older": "1" * 40}
    lookups = _Lookups(kept, reachable=False, upgrade=False)
    commits = _tag_commits(repository, ["refs/tags/older", REFS[1]], lookups)  # the repository has no tag `older`
    assert commits.keys() == {*kept, f"{repository}#{REFS[1]}"}
    assert commits.items() >= kept.items()
    silent = str(tmp_path / "gone")
    kept = {f"{silent}#{REFS[0]}": "1" * 40}
    assert _tag_commits(silent, [REFS[0]], _Lookups(kept, reachable=False, upgrade=False)) == kept
