"""What a commit builds, as its own code says, whatever layout that code has."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stacks import impact, plan
from stacks.config.stack_file import ROOT
from stacks.identity import older_trees
from stacks.identity.git import git
from tests.helpers.sample_repository import DOCKERFILE, STACK, Checkout, config, make

LAST_OF_OLD_LAYOUT = "25ac601"
"""The last commit of this project whose code prints a stack's specs with ``python -m stacks specs STACK`` alone."""

OLD_COMMAND = """
SPECS = {specs!r}

def main(words):
    command, stack = words
    print(SPECS)
    return 0 if command == "specs" and stack == "local" else 2
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A history whose first commit has the old layout's interface, and whose second has today's ``stacks``."""
    sample = make(tmp_path / "repo")
    sample.git("init", "-q", "-b", "main")
    specs = [{key: item[key] for key in item if key != "labels"} for item in plan.describe("local", sample.root)]
    stacks = sample.root / "stacks"
    stacks.rename(tmp_path / "stacks")
    for path, text in {"plan.py": "", "cli.py": OLD_COMMAND.format(specs=json.dumps(specs))}.items():
        sample.write(f"stacks/{path}", text)
    sample.commit(STACK, config())
    shutil.rmtree(stacks)
    (tmp_path / "stacks").rename(stacks)
    sample.commit("README.md", "the new layout\n")
    return sample


def first_of_new_layout() -> list[str]:
    """Return the commit of this project after the old layout's last, where the clone has both."""
    commits = git(ROOT, "rev-list", "--first-parent", "--reverse", f"{LAST_OF_OLD_LAYOUT}..HEAD")
    return (commits or "").split()[:1]


@pytest.mark.parametrize("commit", ["sample", *first_of_new_layout()])
def test_tree_of_old_layout_builds_the_same_images(commit: str, checkout: Checkout) -> None:
    root, new, old = (checkout.root, "HEAD", "HEAD~1") if commit == "sample" else (ROOT, commit, LAST_OF_OLD_LAYOUT)
    before, after = older_trees.at(old, root), older_trees.at(new, root)
    assert before.stacks
    assert before == after
    assert not before.unresolved


def test_affected_since_old_layout_is_nothing(checkout: Checkout) -> None:
    affected = impact.since("HEAD~1", checkout.root)
    assert affected == impact.Affected(images={}, removed={}, unresolved={})


def test_commit_of_image_before_new_layout_stays(checkout: Checkout) -> None:
    assert checkout.revision() == checkout.git("rev-parse", "HEAD~1")[:7]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The runs of older code, in this process."""
    runs: list[object] = []
    describe: Callable[..., object] = older_trees._descriptions

    def run(*arguments: object) -> object:
        runs.append(arguments)
        return describe(*arguments)

    monkeypatch.setattr(older_trees, "_descriptions", run)
    return runs


def test_commits_with_equal_stacks_run_their_code_once(checkout: Checkout, runs: list[object]) -> None:
    checkout.commit("stacks/Pulumi.other.yaml", config("2.14.0"))
    for number in range(4):
        checkout.commit(DOCKERFILE, f"FROM scratch\nLABEL number={number}\n")
    assert checkout.revision() == checkout.git("rev-parse", "HEAD")[:7]
    plan.make("other", root=checkout.root)
    assert len(runs) == 1


def test_code_that_ends_early_runs_again_next_time(checkout: Checkout, runs: list[object]) -> None:
    checkout.commit("stacks/plan.py", "import os\nos._exit(3)\n")
    for _ in range(2):
        assert older_trees.at("HEAD", checkout.root).unresolved == {"local": "it ended with 3"}
    assert len(runs) == 2


def test_objects_of_commits_differ_where_attributes_do(checkout: Checkout) -> None:
    checkout.commit(".gitattributes", "*.bat eol=crlf\n")
    new, old = (older_trees.objects(commit, checkout.root) for commit in ("HEAD", "HEAD~1"))
    assert set(new) - set(old) == {".gitattributes"}
    assert {path: new[path] for path in old} == old


def test_objects_of_nested_checkout_are_its_own(checkout: Checkout) -> None:
    expected = older_trees.objects("HEAD", checkout.root)
    outer = checkout.root.parent
    shutil.rmtree(checkout.root / ".git")
    subprocess.run(["git", "init", "-q", outer], check=True)
    checkout.commit("../stacks/Pulumi.outer.yaml", "config: {}\n")
    assert older_trees.objects("HEAD", checkout.root) == expected
