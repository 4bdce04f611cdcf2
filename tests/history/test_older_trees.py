"""What a commit builds: its YAML, lock and Dockerfiles as today's code reads them, and its record. Its code never runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stacks import impact
from stacks.config.stack_file import ROOT
from stacks.identity import older_trees
from stacks.identity.older_trees import fingerprint_record as record
from stacks.identity.older_trees import rules
from tests.helpers.sample_repository import STACK, Checkout, config, make
from tests.unit import test_layout

LOCAL = "stacks/flavors/local.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    sample = make(tmp_path / "repo")
    sample.git("init", "-q", "-b", "main")
    sample.commit("README.md", "one\n")
    return sample


def commit_other_code(checkout: Checkout) -> str:
    """Commit a flavor with other code than the one that runs."""
    return checkout.commit(LOCAL, f"{(ROOT / LOCAL).read_text()}\nOTHER = 1\n")


def recorded(checkout: Checkout) -> str:
    """Return the record of what the checkout builds now."""
    checkout.git("add", "-A")
    checkout.git("commit", "-q", "--allow-empty", "-m", "to read")
    images = older_trees.at("HEAD", checkout.root).stacks["local"]
    checkout.git("reset", "-q", "--soft", "HEAD~1")
    return record.text({"local": older_trees.all_fingerprints(images)})


@pytest.mark.parametrize("code", ["import os\nos._exit(3)\n", "raise SystemExit\n", "x = (\n", "\0", ""])
def test_older_code_of_any_kind_is_not_run(code: str, checkout: Checkout) -> None:
    now = (checkout.root / "stacks/spec.py").read_text()
    checkout.commit("stacks/spec.py", code)
    checkout.commit("stacks/spec.py", now)
    tree = older_trees.at("HEAD~1", checkout.root)
    assert not tree.stacks
    assert tree.unresolved["local"].endswith(
        "has other code in stacks/, which is not run, and no record of what it built"
    )
    assert older_trees.published("HEAD~1", checkout.root, "local") == {}
    assert older_trees.at("HEAD~2", checkout.root).stacks.keys() == {"local"}


@pytest.mark.parametrize(
    ("path", "edit", "same"),
    [
        (LOCAL, "# a comment\n", True),
        (LOCAL, "\n\n\n", True),
        (LOCAL, "VALUE = 1\n", False),
        ("stacks/versions/cuda.toml", "# a comment\n", False),
        ("stacks/identity/cache.py", "VALUE = 1\n", True),
        ("stacks/checks/new.py", "VALUE = 1\n", True),
        ("stacks/flavors/new.py", "VALUE = 1\n", False),
        ("stacks/flavors/new.py", "", False),
    ],
)
def test_rules_are_the_same_but_for_what_decides(path: str, edit: str, same: bool, checkout: Checkout) -> None:
    file = checkout.root / path
    checkout.commit(path, (file.read_text() if file.exists() else "") + edit)
    assert rules.differing("HEAD~1", checkout.root) == frozenset()
    assert rules.differing("HEAD", checkout.root) == (frozenset() if same else None)


@pytest.mark.parametrize("path", ["flavors/mine.py", "flavors/mine/images.py"])
def test_flavor_of_ones_own_decides_for_its_stacks_alone(path: str, checkout: Checkout) -> None:
    checkout.commit(path, "VALUE = 1\n")
    assert rules.differing("HEAD", checkout.root) == frozenset({"mine"})
    assert older_trees.at("HEAD", checkout.root).stacks.keys() == {"local"}
    assert older_trees.published("HEAD", checkout.root, "local").keys() == {"torch"}


def test_file_that_a_flavor_may_have_read_is_gone(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commit built may have followed from the file; today's code builds without it."""
    checkout.commit("flavors/data.txt", "1\n")
    monkeypatch.setattr(rules, "reached", lambda _: None)
    assert older_trees.published("HEAD~1", checkout.root, "local").keys() == {"torch"}
    assert older_trees.published("HEAD", checkout.root, "local") == {}


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("import re\nfrom slipway import Field\n", "mine"),
        ("from stacks.flavors import other\n", "mine other third"),
        ("from stacks.flavors.other import VALUE\n", "mine other third"),
        ("from .third import VALUE\n", "mine third"),
        ("from . import third\n", "mine third"),
        ("from stacks.flavors import flavor\n", "all"),
        ("import stacks.flavors\n", "all"),
        ("import stacks.flavors.third\nTEXT = stacks.places.ROOT.joinpath('data').read_text()\n", "all"),
        ("import collections.abc, stacks.flavors.third as third\n", "mine third"),
        ("from pathlib import Path\n", "all"),
        ("TEXT = open('flavors/data.json').read()\n", "all"),
        ("HERE = __file__\n", "all"),
        ("READ = Config.__subclasses__()\n", "all"),
        ("x = (\n", "all"),
        ("from pydantic import FilePath\n", "all"),
        ("import re\nNAME = re.compile('[a-z]+')\n", "mine"),
        ("", "mine"),
    ],
)
def test_flavor_is_made_of_what_it_imports(
    text: str, reached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file reads by other means than an import cannot be told from its text."""
    files = {"mine.py": text, "other/__init__.py": "from .images import VALUE\n", "third.py": "", "data.json": "{}"}
    files["other/images.py"] = "from ..third import VALUE\n"
    for name, content in files.items():
        (tmp_path / "flavors" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "flavors" / name).write_text(content)
    monkeypatch.setattr(rules, "ROOT", tmp_path)
    monkeypatch.setattr(rules, "_running", rules._running.__wrapped__)
    assert rules.reached("mine") == (None if reached == "all" else {*reached.split()})
    assert rules.reached("local") == rules.reached("universal") == frozenset()
    assert rules.reached("linked") is None


def test_rules_are_of_all_that_makes_specs() -> None:
    modules, todo = set[str](), ["stacks.graph"]
    while todo:
        name = todo.pop()
        if name not in modules and name.startswith("stacks."):
            modules.add(name)
            todo += test_layout.dependencies()[name]
    paths = {test_layout.modules()[name].relative_to(ROOT).as_posix() for name in modules}
    only_checks = {"stacks/jobs/requirements.py"}
    assert {path for path in paths if not rules.DECIDING.fullmatch(path)} == only_checks


def test_rules_of_a_tree_without_code_are_todays(checkout: Checkout) -> None:
    for folder in ("config", "flavors", "versions"):
        shutil.rmtree(checkout.root / "stacks" / folder)
    for file in (checkout.root / "stacks").glob("*.py"):
        file.unlink()
    checkout.commit("README.md", "a repository of one's own\n")
    assert rules.differing("HEAD", checkout.root) == frozenset()
    assert older_trees.at("HEAD", checkout.root).stacks.keys() == {"local"}


def test_record_tells_what_other_code_built(checkout: Checkout) -> None:
    """A change of code that changes no image moves no tag and affects nothing."""
    first = checkout.commit(record.FILE, recorded(checkout))
    revision = checkout.revision()
    other = commit_other_code(checkout)
    assert checkout.revision() == revision
    for commit in (first, other):
        assert impact.since(commit, checkout.root) == impact.Affected(images={}, removed={}, unresolved={})
    checkout.commit(LOCAL, (ROOT / LOCAL).read_text())
    assert checkout.revision() == revision
    changed = checkout.commit(STACK, config("2.14.0"))
    assert checkout.revision() == changed
    assert impact.since(other, checkout.root).images.keys() == {"local"}


def test_record_of_another_image_marks_the_tag(checkout: Checkout) -> None:
    recorded_image = f"local torch {'a' * 64}\n"
    checkout.commit(record.FILE, recorded_image)
    assert "-x" not in checkout.revision()
    commit_other_code(checkout)
    assert "-x" in checkout.revision()


def test_change_by_older_code_alone_names_the_code(checkout: Checkout) -> None:
    checkout.write(record.FILE, f"local torch {'a' * 64}\n")
    other = commit_other_code(checkout)
    checkout.commit(LOCAL, (ROOT / LOCAL).read_text())
    assert impact.since(other, checkout.root).images == {"local": {"torch": ["the code in stacks/"]}}


def test_commits_with_equal_stacks_are_read_once(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    published = older_trees.published
    monkeypatch.setattr(
        older_trees, "published", lambda commit, *rest: reads.append(commit) or published(commit, *rest)
    )
    checkout.commit("README.md", "two\n")
    tag = checkout.tag()
    assert reads
    reads.clear()
    checkout.commit("README.md", "three\n")
    assert checkout.tag() == tag
    assert not reads


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
