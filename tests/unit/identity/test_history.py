"""Revisions against real git histories: the commit is the last that changed what is built, never simply the last."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from stacks.identity import history as revision
from stacks.tags import parse
from tests.helpers.sample_repository import DOCKERFILE, STACK, Checkout, config, make


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_TYPE", "GITHUB_REF_NAME", revision.BRANCH_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make(tmp_path / "repo")


@pytest.fixture
def first(checkout: Checkout) -> str:
    checkout.git("init", "-q", "-b", "main")
    return checkout.commit("README.md", "one\n")


def test_a_commit_that_does_not_touch_the_image_leaves_its_tag(checkout: Checkout, first: str) -> None:
    tag = checkout.tag()
    assert tag == f"{first}-local-torch2.14.1-vision0.29.2-audio2.11.0"
    checkout.commit("README.md", "two\n")
    checkout.commit("dockerfiles/torch/README.md", "ignored\n")
    checkout.commit("dockerfiles/other/Dockerfile", "FROM scratch\n")
    checkout.commit(STACK, config(comment="only a comment"))
    checkout.commit("stacks/errors.py", (checkout.root / "stacks/errors.py").read_text() + "# a comment\n")
    assert checkout.tag() == tag


def test_a_changed_file_moves_the_tag_and_a_deleted_one_too(checkout: Checkout, first: str) -> None:
    second = checkout.commit("dockerfiles/torch/extra.sh", "true\n")
    assert checkout.revision() == second != first
    third = checkout.commit(DOCKERFILE, "FROM scratch\nCOPY torch/extra.sh /\n")
    (checkout.root / "dockerfiles/torch/extra.sh").unlink()
    checkout.git("commit", "-qam", "remove")
    assert checkout.revision() == checkout.git("rev-parse", "HEAD")[:7] != third


def test_a_change_taken_back_gives_the_first_tag_again(checkout: Checkout, first: str) -> None:
    """Equal content, equal tag: what is already published under it is what would be built."""
    checkout.commit("dockerfiles/torch/extra.sh", "true\n")
    (checkout.root / "dockerfiles/torch/extra.sh").unlink()
    checkout.git("commit", "-qam", "remove")
    assert checkout.revision() == first


def test_a_changed_value_moves_the_tag(checkout: Checkout, first: str) -> None:
    second = checkout.commit(STACK, config("2.14.0"))
    checkout.commit(STACK, config("2.14.0", comment="later"))
    assert checkout.revision() == second != first


def test_a_changed_default_in_python_moves_the_tag(checkout: Checkout, first: str) -> None:
    flavor = checkout.root / "stacks/flavors/local.py"
    second = checkout.commit("stacks/flavors/local.py", flavor.read_text().replace("BSD-3-Clause", "MIT"))
    for number in range(5):
        checkout.commit("stacks/errors.py", (checkout.root / "stacks/errors.py").read_text() + f"# {number}\n")
    shown = subprocess.run(  # its own code, in its own process
        [sys.executable, "-m", "stacks", "show", "local", "--json"], cwd=checkout.root, capture_output=True, check=True
    )
    assert json.loads(shown.stdout)["images"][0]["tag"].startswith(f"{second}-local-")
    assert second != first


def test_what_is_not_committed_is_marked_and_the_mark_is_the_content(checkout: Checkout, first: str) -> None:
    checkout.write(DOCKERFILE, "FROM scratch\nLABEL a=b\n")
    marked = checkout.tag()
    revision = parse(marked)[0]
    assert revision.commit == first
    assert revision.mark
    checkout.write(DOCKERFILE, "FROM scratch\nLABEL a=c\n")
    assert checkout.tag() != marked
    checkout.write(DOCKERFILE, "FROM scratch\nLABEL a=b\n")
    assert checkout.tag() == marked
    checkout.write(DOCKERFILE, "FROM scratch\n")
    assert checkout.revision() == first


def test_an_untracked_file_of_the_context_is_marked(checkout: Checkout, first: str) -> None:
    checkout.write("dockerfiles/torch/new.sh", "true\n")
    revision = parse(checkout.tag())[0]
    assert revision.commit == first
    assert revision.mark


def test_a_branch_prefixes_the_tag_and_detached_ci_names_it(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.git("checkout", "-q", "-b", "feature/UCC")
    assert checkout.revision() == f"feature-UCC-{first}"
    checkout.git("checkout", "-q", "--detach")
    assert checkout.revision() == first
    monkeypatch.setenv("GITHUB_HEAD_REF", "fix/x")
    assert checkout.revision() == f"fix-x-{first}"
    monkeypatch.setenv(revision.BRANCH_VARIABLE, "main")
    for at in ("--detach", "feature/UCC"):
        checkout.git("checkout", "-q", at)
        assert checkout.revision() == first, "as which it is asked"


def test_a_merge_that_brings_the_change_is_what_it_comes_from(checkout: Checkout, first: str) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    change = checkout.commit(DOCKERFILE, "FROM scratch\nLABEL a=b\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("README.md", "meanwhile\n")
    checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert checkout.revision() == change != first


def test_without_usable_history_the_content_names_the_image(checkout: Checkout, tmp_path: Path) -> None:
    alone = checkout.revision()
    assert len(alone) == 9
    assert alone.startswith("x")
    checkout.git("init", "-q", "-b", "main")
    checkout.commit("README.md", "one\n")
    checkout.commit("README.md", "two\n")
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", checkout.root.as_uri(), shallow], check=True)
    assert Checkout(shallow).revision() == alone


def test_a_clone_gives_the_same_tag(checkout: Checkout, first: str, tmp_path: Path) -> None:
    checkout.commit(STACK, config("2.14.0"))
    checkout.commit("README.md", "two\n")
    subprocess.run(["git", "clone", "-q", str(checkout.root), str(tmp_path / "clone")], check=True)
    assert Checkout(tmp_path / "clone").tag() == checkout.tag()
    assert first not in checkout.tag()


def test_a_commit_whose_code_cannot_say_is_passed_over(checkout: Checkout, first: str) -> None:
    checkout.commit("stacks/flavors/local.py", "def oops(\n")
    shutil.copy(ROOT / "stacks/flavors/local.py", checkout.root / "stacks/flavors/local.py")
    checkout.git("commit", "-qam", "mend")
    assert checkout.revision() == first


def test_a_change_behind_a_commit_whose_code_cannot_say_is_the_mending_one(checkout: Checkout, first: str) -> None:
    checkout.commit("stacks/flavors/local.py", "def oops(\n")
    checkout.write(STACK, config("2.14.0"))
    shutil.copy(ROOT / "stacks/flavors/local.py", checkout.root / "stacks/flavors/local.py")
    checkout.git("commit", "-qam", "mend and change")
    assert checkout.revision() == checkout.git("rev-parse", "HEAD")[:7] != first


def test_answers_kept_under_other_rules_do_not_count(
    checkout: Checkout, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.commit("README.md", "two\n")
    assert checkout.revision() == first
    for kept in (checkout.root / ".slipway/cache/revisions").iterdir():
        kept.write_text("{}")
    assert checkout.revision() != first
    monkeypatch.setattr(revision, "_rules", lambda: "others")
    assert checkout.revision() == first
