"""Revisions in real git histories: the last commit that changed what is built, which need not be the last commit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.identity import history
from stacks.tags import parse
from tests.helpers.sample_repository import BUILD, DOCKERFILE, STACK, Checkout, config, make


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make(tmp_path / "repo")


@pytest.fixture
def first(checkout: Checkout) -> str:
    checkout.git("init", "-q", "-b", "main")
    return checkout.commit("README.md", "one\n")


def test_tag_after_unrelated_commit_stays(checkout: Checkout, first: str) -> None:
    tag = checkout.tag()
    assert tag == f"{first}-local-torch2.14.1-vision0.29.2-audio2.11.0"
    checkout.commit("README.md", "two\n")
    checkout.commit("dockerfiles/torch/README.md", "ignored\n")
    checkout.commit("dockerfiles/other/Dockerfile", "FROM scratch\n")
    checkout.commit(STACK, config(comment="only a comment"))
    checkout.commit("stacks/differences.py", (checkout.root / "stacks/differences.py").read_text() + "# a comment\n")
    assert checkout.tag() == tag


def test_revision_after_changed_or_deleted_file_moves(checkout: Checkout, first: str) -> None:
    second = checkout.commit("dockerfiles/torch/extra.sh", "true\n")
    assert checkout.revision() == second != first
    third = checkout.commit(DOCKERFILE, f"{BUILD}ENV A=b\n")
    (checkout.root / "dockerfiles/torch/extra.sh").unlink()
    checkout.git("commit", "-qam", "remove")
    assert checkout.revision() == checkout.git("rev-parse", "HEAD")[:7] != third


@pytest.mark.parametrize("way", ["delete", "rename", "ignore"])
def test_image_without_a_former_file_is_of_that_commit(checkout: Checkout, first: str, way: str) -> None:
    """Others come before and after, which change nothing of it."""
    script = "dockerfiles/torch/extra.sh"
    checkout.commit(script, "true\n")
    checkout.commit(DOCKERFILE, f"{BUILD}ENV A=b\n")
    checkout.commit("dockerfiles/other/file.txt", "1\n")
    if way == "ignore":
        checkout.commit(f"{DOCKERFILE}.dockerignore", "**/extra.sh\n")
    else:
        checkout.git(*(("rm", script) if way == "delete" else ("mv", script, "stacks/extra.sh")))
        checkout.git("commit", "-qam", way)
    without = checkout.git("rev-parse", "HEAD")[:7]
    checkout.commit("dockerfiles/other/file.txt", "2\n")
    assert checkout.revision() == without != first


def test_revision_after_another_stated_digest_moves(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment states is of this machine, as its mirrors are."""
    mirror = {"images": {"debian": "m.example/debian"}}
    checkout.commit("stacks/lock.toml", f'"m.example/debian:bookworm-slim" = "sha256:{"c" * 64}"\n')
    for digit in "ab":
        stated = {**mirror, "imageDigests": {"m.example/debian:bookworm-slim": f"sha256:{digit * 64}"}}
        commit = checkout.commit(STACK, config() + f"  slipway:mirrors: {json.dumps(stated)}\n")
        assert checkout.revision() == commit != first
        (image,) = plan.make("local", root=checkout.root).images
        assert image.args["BASE_IMAGE"] == f"m.example/debian:bookworm-slim@sha256:{digit * 64}"
    checkout.commit("stacks/lock.toml", "")
    checkout.commit(STACK, config())
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps(stated))
    (image,) = plan.make("local", root=checkout.root).images
    assert image.tag.startswith(f"{first}-local")
    assert image.args["BASE_IMAGE"].endswith("b" * 64)


def test_revision_after_comments_in_dockerfile_stays(checkout: Checkout, first: str) -> None:
    for number in range(3):
        checkout.commit(DOCKERFILE, f"# Comment {number}.\n{BUILD}")
        assert checkout.revision() == first
    second = checkout.commit("dockerfiles/torch/run", "false\n")
    checkout.git("checkout", "-q", "-b", "side")
    third = checkout.commit("dockerfiles/torch/run", "true || false\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("README.md", "three\n")
    checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    for number in range(2):
        assert checkout.revision() == third != second
        checkout.commit(DOCKERFILE, f"# Another {number}.\n{BUILD}")
    assert checkout.revision() == third


def test_revision_after_reverted_change_is_the_first(checkout: Checkout, first: str) -> None:
    """Equal content, equal tag: what is already published under it is what would be built."""
    checkout.commit("dockerfiles/torch/extra.sh", "true\n")
    (checkout.root / "dockerfiles/torch/extra.sh").unlink()
    checkout.git("commit", "-qam", "remove")
    assert checkout.revision() == first


def test_revision_after_a_value_is_set_back_stays(checkout: Checkout) -> None:
    checkout.write(STACK, config("2.14.0"))
    checkout.git("init", "-q", "-b", "main")
    checkout.commit("README.md", "one\n")
    once = checkout.commit(STACK, config())
    for number in range(4):
        checkout.commit(f"dockerfiles/other/{number}", "unrelated\n")
    checkout.commit(STACK, config("2.14.0"))
    back = checkout.commit(STACK, config())
    for number in range(6):
        assert checkout.revision() == back != once
        checkout.commit(STACK, config(comment=f"{number}"))


def test_revision_after_changed_value_moves(checkout: Checkout, first: str) -> None:
    second = checkout.commit(STACK, config("2.14.0"))
    checkout.commit(STACK, config("2.14.0", comment="later"))
    assert checkout.revision() == second != first


def test_revision_after_changed_default_in_python_moves(checkout: Checkout, first: str) -> None:
    flavor = checkout.root / "stacks/flavors/local.py"
    second = checkout.commit("stacks/flavors/local.py", flavor.read_text().replace("BSD-3-Clause", "MIT"))
    for number in range(5):
        checkout.commit(
            "stacks/differences.py", (checkout.root / "stacks/differences.py").read_text() + f"# {number}\n"
        )
    output = subprocess.run(  # its own code, in its own process
        [sys.executable, "-m", "stacks", "show", "local", "--json"], cwd=checkout.root, capture_output=True, check=True
    )
    assert json.loads(output.stdout)["images"][0]["tag"].startswith(f"{second}-local-")
    assert second != first


def test_tag_of_uncommitted_change_is_marked_with_content(checkout: Checkout, first: str) -> None:
    checkout.write(DOCKERFILE, f"{BUILD}LABEL a=b\n")
    marked = checkout.tag()
    revision = parse(marked)[0]
    assert revision.commit == first
    assert revision.mark
    checkout.write(DOCKERFILE, f"{BUILD}LABEL a=c\n")
    assert checkout.tag() != marked
    checkout.write(DOCKERFILE, f"{BUILD}LABEL a=b\n")
    assert checkout.tag() == marked
    checkout.write(DOCKERFILE, f"# A comment.\n{BUILD}")
    assert checkout.revision() == first


def test_tag_with_untracked_file_in_context_is_marked(checkout: Checkout, first: str) -> None:
    checkout.write("dockerfiles/torch/new.sh", "true\n")
    revision = parse(checkout.tag())[0]
    assert revision.commit == first
    assert revision.mark


def test_revision_on_branch_has_its_name_before_it(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.git("checkout", "-q", "-b", "feature/UCC")
    assert checkout.revision() == f"feature-UCC-{first}"
    checkout.git("checkout", "-q", "--detach")
    assert checkout.revision() == first
    monkeypatch.setenv("GITHUB_HEAD_REF", "fix/x")
    assert checkout.revision() == f"fix-x-{first}"
    monkeypatch.setenv(history.BRANCH_VARIABLE, "main")
    for at in ("--detach", "feature/UCC"):
        checkout.git("checkout", "-q", at)
        assert checkout.revision() == first


def test_revision_after_merged_change_is_its_commit(checkout: Checkout, first: str) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    change = checkout.commit(DOCKERFILE, f"{BUILD}LABEL a=b\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("README.md", "meanwhile\n")
    checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert checkout.revision() == change != first


def test_revision_without_usable_history_is_the_mark(checkout: Checkout, tmp_path: Path) -> None:
    alone = checkout.revision()
    assert len(alone) == 9
    assert alone.startswith("x")
    checkout.git("init", "-q", "-b", "main")
    checkout.commit("README.md", "one\n")
    checkout.commit("README.md", "two\n")
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", checkout.root.as_uri(), shallow], check=True)
    assert Checkout(shallow).revision() == alone


def test_tag_in_clone_is_the_same(checkout: Checkout, first: str, tmp_path: Path) -> None:
    checkout.commit(STACK, config("2.14.0"))
    checkout.commit("README.md", "two\n")
    subprocess.run(["git", "clone", "-q", str(checkout.root), str(tmp_path / "clone")], check=True)
    assert Checkout(tmp_path / "clone").tag() == checkout.tag()
    assert first not in checkout.tag()


def test_tag_without_search_names_the_last_commit(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = checkout.commit("README.md", "two\n")
    searched = checkout.tag()
    monkeypatch.setattr(history, "_origins", None)  # which reads older trees
    checkout.git("switch", "-q", "-c", "fix/ucc")
    (image,) = plan.make("local", root=checkout.root, search=False).images
    assert image.tag == searched.replace(first, f"fix-ucc-{last}")


def test_tag_without_search_and_git_has_the_mark(checkout: Checkout) -> None:
    (image,) = plan.make("local", root=checkout.root, search=False).images
    assert image.tag == checkout.tag()


@pytest.mark.usefixtures("first")
def test_check_reads_no_older_tree(checkout: Checkout) -> None:
    checkout.commit(STACK, config("2.14.0"))
    done = subprocess.run(
        [sys.executable, "-m", "stacks", "check"], cwd=checkout.root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "local: 1 image, ok\n"
    assert not (checkout.root / ".slipway/cache").exists()


def test_revision_before_broken_commit_stays(checkout: Checkout, first: str) -> None:
    checkout.commit("stacks/flavors/local.py", "def oops(\n")
    shutil.copy(ROOT / "stacks/flavors/local.py", checkout.root / "stacks/flavors/local.py")
    checkout.git("commit", "-qam", "mend")
    assert checkout.revision() == first


def test_revision_of_change_that_fixes_broken_code_is_its_own(checkout: Checkout, first: str) -> None:
    checkout.commit("stacks/flavors/local.py", "def oops(\n")
    checkout.write(STACK, config("2.14.0"))
    shutil.copy(ROOT / "stacks/flavors/local.py", checkout.root / "stacks/flavors/local.py")
    checkout.git("commit", "-qam", "mend and change")
    assert checkout.revision() == checkout.git("rev-parse", "HEAD")[:7] != first


def test_revision_kept_under_other_rules_is_ignored(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.commit("README.md", "two\n")
    assert checkout.revision() == first
    for file in (checkout.root / ".slipway/cache/revisions").iterdir():
        file.write_text("{}")
    assert checkout.revision() != first
    monkeypatch.setattr(history, "_rules", lambda *_: "others")
    assert checkout.revision() == first


def test_revision_kept_without_mirrors_is_not_that_with_them(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`slipway show` before the first `up` knows no mirror yet; `.slipway/env` then names that of the base image."""
    name = "mirror.example/library/debian:bookworm-slim"
    locked = checkout.commit("stacks/lock.toml", f'"{name}" = "sha256:{"1" * 64}"\n')
    assert checkout.revision() == first
    history._fingerprints.cache_clear()
    monkeypatch.setenv("SLIPWAY_MIRRORS", '{"images": {"docker.io/library": "mirror.example/library"}}')
    assert checkout.revision() == locked
