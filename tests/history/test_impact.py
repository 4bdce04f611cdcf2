"""What a change affects, in real git histories and by the definition."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands import compare
from cli.main import main
from stacks import plan
from stacks.config.fetching.mirrors import MIRRORS_VARIABLE
from stacks.config.stack_file import ROOT
from stacks.identity.content import Content
from stacks.identity.older_trees import Images, Tree
from stacks.impact import between
from stacks.spec import LABEL_PREFIX, ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from tests.helpers.contents import content
from tests.helpers.sample_repository import BUILD, DOCKERFILE, STACK, Checkout, config, make

SHALLOW = "run `git fetch --unshallow`, or give actions/checkout `fetch-depth: 0`"
FLAVOR = "stacks/flavors/local.py"
ALL = {"include": [{"stack": "local", "images": ["torch"]}]}
NONE: dict[str, list[object]] = {"include": []}


class AffectedCheckout(Checkout):
    """A checkout on which ``affected`` runs in this process, with this project's own code."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, printed: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._patch, self._printed = patch, printed

    def run(self, *words: str) -> tuple[int, str, str]:
        self._patch.setattr(compare, "ROOT", self.root)
        status = main(["affected", *words])
        return (status, *self._printed.readouterr())

    def lines(self, ref: str) -> list[str]:
        status, out, err = self.run("--since", ref)
        assert (status, err) == (0, "")
        return out.splitlines()

    def matrix(self, ref: str) -> object:
        status, out, err = self.run("--since", ref, "--json")
        assert (status, err) == (0, "")
        assert out.count("\n") == 1  # $GITHUB_OUTPUT takes one line
        return json.loads(out)

    def mistake(self, ref: str) -> str:
        status, out, err = self.run(f"--since={ref}")
        assert (status, out) == (1, "")
        assert err.count("\n") == 1
        return err.rstrip("\n")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> AffectedCheckout:
    monkeypatch.delenv(MIRRORS_VARIABLE, raising=False)
    sample = AffectedCheckout(make(tmp_path / "repo").root, monkeypatch, capsys)
    sample.git("init", "-q", "-b", "main")
    sample.commit("README.md", "one\n")
    return sample


def test_affected_by_argument_prints_old_and_new_value(checkout: AffectedCheckout) -> None:
    checkout.commit(STACK, config("2.14.0"))
    assert checkout.lines("HEAD~1") == ["local", "  torch  args TORCH_VERSION '2.14.1' -> '2.14.0'"]
    assert checkout.matrix("HEAD~1") == ALL


def test_affected_by_files_prints_the_first_names(checkout: AffectedCheckout) -> None:
    checkout.commit("dockerfiles/torch/a.sh", "true\n")
    (checkout.root / "dockerfiles/torch/a.sh").rename(checkout.root / "dockerfiles/torch/b.sh")
    checkout.commit(DOCKERFILE, f"{BUILD}ENV A=b\n")
    renamed = "files torch/Dockerfile changed; files torch/b.sh added; files torch/a.sh removed"
    assert checkout.lines("HEAD~1") == ["local", f"  torch  {renamed}"]
    checkout.commit(STACK, config("2.14.0"))
    assert checkout.lines("HEAD~2") == ["local", f"  torch  {renamed}; and 1 more"]
    checkout.commit(DOCKERFILE, BUILD)
    changed = "files torch/b.sh added; files torch/a.sh removed; args TORCH_VERSION '2.14.1' -> '2.14.0'"
    assert checkout.lines("HEAD~3") == ["local", f"  torch  {changed}"]


def test_affected_by_mode_or_link_prints_the_file(checkout: AffectedCheckout) -> None:
    checkout.commit("dockerfiles/torch/a.sh", "true\n")
    (checkout.root / "dockerfiles/torch/a.sh").chmod(0o755)
    (checkout.root / "dockerfiles/torch/link").symlink_to("a.sh")
    changed = ["local", "  torch  files torch/a.sh changed; files torch/link added"]
    assert checkout.lines("HEAD") == changed
    checkout.commit("README.md", "two\n")
    assert checkout.lines("HEAD~1") == changed
    assert checkout.matrix("HEAD") == NONE


ATTRIBUTES = "* text=auto\n*.sh export-ignore\nstacks/*.yaml export-ignore\n*.txt export-subst\n*.bat eol=crlf\n"


@pytest.mark.parametrize("path", [".gitattributes", "dockerfiles/.gitattributes", "dockerfiles/torch/.gitattributes"])
@pytest.mark.parametrize("nested", [False, True])
def test_affected_by_export_attributes_is_nothing(checkout: AffectedCheckout, path: str, nested: bool) -> None:
    """Attributes of git archives have no effect; those of a checkout have."""
    if nested:
        shutil.rmtree(checkout.root / ".git")
        checkout.root = checkout.root.rename(checkout.root.parent / "inner")
        subprocess.run(["git", "init", "-q", "-b", "main", checkout.root.parent], check=True)
    checkout.write(path, ATTRIBUTES)
    for name in ("a.sh", "a.txt", "a.bat"):
        checkout.write(f"dockerfiles/torch/{name}", "$Format:%H$\n")
    checkout.commit("README.md", "two\n")
    for file in (checkout.root / "dockerfiles/torch").glob("a.*"):
        file.unlink()
    checkout.git("checkout", "-q", ".")
    assert (checkout.root / "dockerfiles/torch/a.bat").read_bytes().endswith(b"\r\n")
    assert checkout.lines("HEAD") == ["nothing to build"]
    for name in ("a.sh", "a.txt"):
        checkout.write(f"dockerfiles/torch/{name}", "$Format:%h$\n")
    assert checkout.lines("HEAD") == ["local", "  torch  files torch/a.sh changed; files torch/a.txt changed"]


def test_affected_by_unrelated_commits_is_nothing(checkout: AffectedCheckout) -> None:
    checkout.commit("README.md", "two\n")
    checkout.commit("dockerfiles/torch/README.md", "ignored\n")
    checkout.commit("dockerfiles/other/Dockerfile", "FROM scratch\n")
    checkout.commit("components/image.py", "raise SystemExit\n")
    checkout.commit(STACK, config(comment="only a comment"))
    checkout.commit(FLAVOR, (checkout.root / FLAVOR).read_text() + "# a comment\n")
    assert checkout.lines("HEAD~6") == ["nothing to build"]
    assert checkout.matrix("HEAD~6") == NONE


def test_affected_by_check_prints_that_it_runs_again(checkout: AffectedCheckout) -> None:
    checks = "FROM ${CHECKED_IMAGE} AS checks\nRUN --mount=type=bind,source=torch/checks,target=/mnt /mnt/one\n"
    build = f"ARG CHECKED_IMAGE=image\n{BUILD.replace('COPY torch', 'COPY torch/run')}{checks}FROM image\n"
    checkout.commit("dockerfiles/torch/run", "exit 0\n")
    checkout.commit("dockerfiles/torch/checks/one", "true\n")
    checkout.commit(DOCKERFILE, build.replace("FROM ${BASE_IMAGE}", "FROM ${BASE_IMAGE} AS image"))
    tag = checkout.tag()
    checkout.commit("dockerfiles/torch/checks/one", "false\n")
    assert checkout.tag() == tag
    line = "  torch  checks run again: files torch/checks/one changed"
    assert checkout.lines("HEAD~1") == ["local", line, "nothing to build"]
    assert checkout.matrix("HEAD~1") == {"include": [{"stack": "local", "images": [], "checks": ["torch"]}]}
    checkout.commit("dockerfiles/torch/run", "false\n")
    assert checkout.lines("HEAD~2") == ["local", "  torch  files torch/run changed"]
    assert checkout.matrix("HEAD~2") == ALL


def test_affected_by_uncommitted_file_prints_it(checkout: AffectedCheckout) -> None:
    checkout.write("dockerfiles/torch/new.sh", "true\n")
    assert checkout.lines("HEAD") == ["local", "  torch  files torch/new.sh added"]
    checkout.git("add", "-A")
    assert checkout.matrix("HEAD") == ALL
    checkout.git("commit", "-q", "-m", "new")
    assert checkout.matrix("HEAD") == NONE


@pytest.mark.parametrize(
    ("path", "old", "new", "known"),
    [
        (FLAVOR, "debian:bookworm-slim", "debian:12", False),
        ("stacks/spec.py", '"title": self.published_name', '"title": "x"', False),
        ("stacks/spec.py", '"""', '"""Other words. ', True),
        ("stacks/identity/cache.py", "_MOST: Final = 256", "_MOST: Final = 257", True),
    ],
    ids=["default", "labels", "docstring", "unused"],
)
def test_affected_by_shared_code_is_all_unless_it_says_the_same(
    checkout: AffectedCheckout, path: str, old: str, new: str, known: bool
) -> None:
    """What other code built is not known without a record, as that code never runs."""
    text = (ROOT / path).read_text()
    assert old in text
    checkout.commit(path, text.replace(old, new, 1))
    reason = f"{checkout.git('rev-parse', 'HEAD')[:7]} has other code in stacks/, which is not run, and no record of what it built"
    status, out, err = checkout.run("--since", "HEAD")
    assert status == 0
    assert out.splitlines() == (["nothing to build"] if known else ["local", "  torch  cannot be compared"])
    assert err == (
        "" if known else f"local: all images count as affected: the older commit cannot be resolved: {reason}\n"
    )


def test_affected_by_tag_suffix_alone_prints_it(checkout: AffectedCheckout) -> None:
    checkout.write(STACK, config() + "  slipway:tagSuffix: mine\n")
    assert checkout.lines("HEAD") == ["local", "  torch  suffix tail none -> 'mine'"]


def test_affected_by_renamed_stack_prints_new_and_removed(checkout: AffectedCheckout) -> None:
    checkout.git("mv", STACK, "stacks/Pulumi.renamed.yaml")
    checkout.git("commit", "-qm", "rename")
    assert checkout.lines("HEAD~1") == ["renamed", "  torch  new", "removed: local"]
    status, out, err = checkout.run("--since", "HEAD~1", "--json")
    assert (status, json.loads(out)) == (0, {"include": [{"stack": "renamed", "images": ["torch"]}]})
    assert err == "removed: local\n"
    checkout.git("rm", "-q", "stacks/Pulumi.renamed.yaml")
    assert checkout.lines("HEAD") == ["removed: renamed", "nothing to build"]


def test_affected_by_image_of_another_stack_prints_why(checkout: AffectedCheckout) -> None:
    """Both stacks are affected; the tag of the image on top names the commit, and stays after one of no build."""
    parent = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n"
    checkout.write("trainer/Dockerfile", parent)
    checkout.write("dockerfiles/packages/Dockerfile", f"{parent}ARG PIP_PACKAGES\n")
    checkout.write("dockerfiles/packages/Dockerfile.dockerignore", "*\n")
    registry = "  slipway:registry: {kind: generic, repository: registry.example/team}\n"
    mine = "  slipway:images: [{name: trainer, dockerfile: trainer/Dockerfile, on: theirs/torch-packages}]\n"
    theirs = "  slipway:packages: {requirements: trainer/list.txt}\n"
    checkout.write("trainer/list.txt", "rich\n")
    checkout.write("stacks/Pulumi.theirs.yaml", f"config:\n  slipway:flavor: local\n{registry}{theirs}")
    checkout.commit("stacks/Pulumi.mine.yaml", f"config:\n  slipway:flavor: local\n{registry}{mine}")
    before = plan.make("mine", root=checkout.root).image("trainer").tag
    checkout.commit("README.md", "two\n")
    assert plan.make("mine", root=checkout.root).image("trainer").tag == before
    head = checkout.commit("trainer/list.txt", "einops\n")
    assert checkout.lines("HEAD~1") == [
        "mine",
        "  trainer  parents BASE_IMAGE torch-packages args PIP_PACKAGES 'rich' -> 'einops'",
        "theirs",
        "  torch-packages  args PIP_PACKAGES 'rich' -> 'einops'",
    ]
    assert plan.make("mine", root=checkout.root).image("trainer").tag.startswith(head)


def test_affected_by_removed_images_prints_them(checkout: AffectedCheckout) -> None:
    shutil.copytree(ROOT / "dockerfiles", checkout.root / "dockerfiles", dirs_exist_ok=True)
    extras = "  slipway:extras: {deepspeed: false, flashAttention: false, apex: %s}\n"
    base = "config:\n  slipway:flavor: base\n" + extras
    checkout.commit("stacks/Pulumi.base.yaml", base % "becbb77")
    checkout.write("stacks/Pulumi.base.yaml", base % "false")
    assert checkout.lines("HEAD") == ["removed: base (apex-source, apex-wheel, torch-extras)", "nothing to build"]


def test_affected_since_branch_leaves_out_its_later_commits(checkout: AffectedCheckout) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit("dockerfiles/torch/ours.sh", "true\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("dockerfiles/torch/theirs.sh", "true\n")
    checkout.git("checkout", "-q", "side")
    assert checkout.lines("main") == ["local", "  torch  files torch/ours.sh added"]


def test_affected_since_parent_of_merge_is_the_other_side(checkout: AffectedCheckout) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit("dockerfiles/torch/side.sh", "true\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("dockerfiles/torch/main.sh", "true\n")
    checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert checkout.lines("HEAD^1") == ["local", "  torch  files torch/side.sh added"]
    assert checkout.lines("side") == checkout.lines("HEAD^2") == ["local", "  torch  files torch/main.sh added"]
    reasons = "files torch/main.sh added; files torch/side.sh added"
    assert checkout.lines("HEAD~2") == ["local", f"  torch  {reasons}"]


def test_affected_since_unrelated_branch_compares_its_tip(checkout: AffectedCheckout) -> None:
    checkout.git("checkout", "-q", "--orphan", "other")
    checkout.commit("dockerfiles/torch/a.sh", "true\n")
    assert checkout.lines("main") == ["local", "  torch  files torch/a.sh added"]


@pytest.mark.parametrize("ref", ["HEAD~1", "HEAD^", "main^1~3", "0" * 40])
def test_affected_since_before_first_commit_is_everything(checkout: AffectedCheckout, ref: str) -> None:
    assert checkout.lines(ref) == ["local", "  torch  new"]
    assert checkout.matrix("HEAD") == NONE


def test_affected_in_folder_of_repository_sees_that_folder(checkout: AffectedCheckout) -> None:
    shutil.rmtree(checkout.root / ".git")
    checkout.root = checkout.root.rename(checkout.root.parent / "inner")
    subprocess.run(["git", "init", "-q", "-b", "main", checkout.root.parent], check=True)
    checkout.commit("README.md", "one\n")
    checkout.commit("../stacks/Pulumi.outer.yaml", "not ours\n")
    checkout.commit("dockerfiles/torch/a.sh", "true\n")
    assert checkout.lines("HEAD~2") == ["local", "  torch  files torch/a.sh added"]


def test_affected_since_tree_without_stacks_is_everything(checkout: AffectedCheckout) -> None:
    for path in ("stacks", "dockerfiles"):
        shutil.move(checkout.root / path, checkout.root.parent / path)
    checkout.commit("README.md", "no stacks\n")
    shutil.move(checkout.root.parent / "dockerfiles", checkout.root / "dockerfiles")
    checkout.commit("README.md", "dockerfiles alone\n")
    shutil.move(checkout.root.parent / "stacks", checkout.root / "stacks")
    assert checkout.lines("HEAD") == checkout.lines("HEAD~1") == ["local", "  torch  new"]


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("mian", "no commit here (did you mean 'main'?); expected a branch, a tag or a commit of this clone"),
        ("", "no commit here; expected a branch"),
        ("HEAD^2", "no commit here; expected a branch"),
        ("nowhere~1", "no commit here; expected a branch"),
        ("--all", "no commit here; expected a branch"),
        ("HEAD:stacks", "no commit here; expected a branch"),
        ("a\nb", "no commit here; expected a branch"),
    ],
)
def test_affected_since_unknown_ref_is_refused(checkout: AffectedCheckout, ref: str, message: str) -> None:
    escaped = ref.replace("\n", "\\n")
    assert checkout.mistake(ref).startswith(f"--since '{escaped}': {message}")


def clone(checkout: AffectedCheckout, path: Path, *options: str) -> AffectedCheckout:
    subprocess.run(["git", "clone", "-q", *options, checkout.root.as_uri(), str(path)], check=True)
    return AffectedCheckout(path, checkout._patch, checkout._printed)


def test_affected_in_shallow_clone_refuses_missing_commits(checkout: AffectedCheckout, tmp_path: Path) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit("dockerfiles/torch/side.sh", "true\n")
    checkout.git("checkout", "-q", "main")
    checkout.commit("README.md", "two\n")
    checkout.commit(STACK, config("2.14.0"))
    two = clone(checkout, tmp_path / "two", "--depth", "2", "--no-single-branch")
    assert two.matrix("HEAD~1") == ALL
    assert two.mistake("HEAD~2") == f"--since 'HEAD~2': no commit of this shallow clone; {SHALLOW}"
    assert two.mistake("origin/side") == f"--since 'origin/side': no ancestor of HEAD in this shallow clone; {SHALLOW}"
    two.git("fetch", "-q", "--unshallow")
    assert two.matrix("HEAD~2") == two.matrix("origin/side") == ALL


def test_affected_without_git_is_refused(checkout: AffectedCheckout) -> None:
    shutil.rmtree(checkout.root / ".git")
    assert checkout.mistake("HEAD") == (
        f"{checkout.root}: git finds no checkout here, and --since needs one; `git status` says what is wrong"
    )


def test_affected_since_unreadable_commit_is_refused(checkout: AffectedCheckout) -> None:
    tree = checkout.git("rev-parse", "HEAD:dockerfiles/torch")
    checkout.commit("dockerfiles/torch/new.sh", "true\n")
    (checkout.root / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert checkout.mistake("HEAD~1").startswith("an older tree cannot be read: git: ")
    assert checkout.matrix("HEAD") == NONE


def test_affected_with_mistake_in_working_tree_is_refused(checkout: AffectedCheckout) -> None:
    checkout.write(STACK, config("9.9.9"))
    assert checkout.mistake("HEAD").startswith("stack local: slipway:torch")
    checkout.write(STACK, config())
    (checkout.root / DOCKERFILE).unlink()
    assert "there is no such Dockerfile" in checkout.mistake("HEAD")


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        (FLAVOR, "def oops(\n", "{commit} has other code in stacks/, which is not run"),
        (STACK, config("9.9.9"), "stack local: slipway:torch"),
    ],
    ids=["code", "stack"],
)
def test_affected_since_unresolved_commit_is_all_with_reason(
    checkout: AffectedCheckout, path: str, text: str, why: str
) -> None:
    good = (checkout.root / path).read_text()
    commit = checkout.commit(path, text)
    checkout.write(path, good)
    status, out, err = checkout.run("--since", "HEAD", "--json")
    assert (status, json.loads(out)) == (0, ALL)
    why = why.replace("{commit}", commit)
    assert err.startswith(f"local: all images count as affected: the older commit cannot be resolved: {why}")
    assert err.count("\n") == 1
    assert str(checkout.root.parent) not in err


def test_affected_since_unresolved_stack_is_that_stack(checkout: AffectedCheckout) -> None:
    checkout.write("stacks/Pulumi.gone.yaml", config("9.9.9"))
    checkout.commit("stacks/Pulumi.other.yaml", "config:\n  slipway:flavor: lokal\n")
    checkout.write("stacks/Pulumi.other.yaml", config())
    checkout.git("rm", "-q", "stacks/Pulumi.gone.yaml")
    status, out, err = checkout.run("--since", "HEAD")
    assert (status, out.splitlines()) == (0, ["other", "  torch  cannot be compared", "removed: gone"])
    assert err.startswith("other: all images count as affected")
    assert "'lokal' is not a flavor" in err


def test_affected_since_missing_dockerfile_is_all_with_reason(checkout: AffectedCheckout) -> None:
    (checkout.root / DOCKERFILE).unlink()
    checkout.commit("README.md", "two\n")
    checkout.write(DOCKERFILE, "FROM scratch\n")
    _, out, err = checkout.run("--since", "HEAD")
    assert out.splitlines() == ["local", "  torch  cannot be compared"]
    assert "resolved: dockerfiles/torch/Dockerfile: there is no such Dockerfile" in err


def test_affected_with_mirrors_resolves_both_trees_with_them(
    checkout: AffectedCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock has the digests of the mirror's images, which apply to both trees."""
    checkout.commit("stacks/lock.toml", f'"mirror.test/debian:bookworm-slim" = "sha256:{"a" * 64}"\n')
    monkeypatch.setenv(MIRRORS_VARIABLE, '{"images": {"docker.io/library": "mirror.test"}}')
    assert checkout.matrix("HEAD") == NONE
    assert checkout.lines("HEAD~1") == [
        "local",
        f"  torch  parents BASE_IMAGE digest none -> 'sha256:{'a' * 52}…'",
    ]


# By the definition, an image is affected exactly when its spec, its files or a parent differs. First, trees in memory.

NAMES = ("a", "b", "c", "d", "e")
PARTS = ("dockerfile", "files", "args", "labels", "parents")


@st.composite
def images(draw: st.DrawFn, then: Images | None = None) -> dict[str, Content]:
    """A stack's images, parents first; of ``then``, if given, some are kept, some changed and some left out."""
    contents: dict[str, Content] = {}
    for name in NAMES:
        fate = draw(st.sampled_from(["keep"] * 6 + ["make", "make", "drop"]))
        kept = then.get(name) if then and fate == "keep" else None
        if kept and set(kept.spec.siblings) <= set(contents):
            contents[name] = kept
        elif fate != "drop":
            siblings = [earlier for earlier in contents if draw(st.booleans())]
            few = st.sampled_from(["1", "2"])
            contents[name] = content(
                ImageSpec(
                    name=name,
                    dockerfile=f"{name}/Dockerfile",
                    target=draw(st.none() | few),
                    args=draw(st.dictionaries(st.sampled_from(["X", "Y"]), few)),
                    tuning=draw(st.dictionaries(st.just("MAX_JOBS"), few)),
                    parents={
                        "BASE_IMAGE": Outside(reference=draw(few)),
                        **{f"P{parent}": Sibling(image=parent) for parent in siblings},
                    },
                    description=draw(few),
                    licenses="MIT",
                    suffix=Suffix(variant="v", torch=draw(st.none() | few)),
                ),
                labels={f"{LABEL_PREFIX}title": draw(few)},
                files=draw(st.dictionaries(st.sampled_from(["f", "g"]), few)),
            )
    return contents


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Images], dict[str, Images]]:
    stacks = st.sampled_from([["s"], ["s", "t"]])
    then: dict[str, Images] = {stack: draw(images()) for stack in draw(stacks)}
    now: dict[str, Images] = {stack: draw(images(then.get(stack))) for stack in draw(stacks)}
    if draw(st.booleans()):
        del draw(st.sampled_from([then, now]))["s"]
    return then, now


def differs(name: str, then: Images, now: Images) -> bool:
    if name not in then or any(differs(parent, then, now) for parent in now[name].spec.siblings):
        return True
    before, after = then[name], now[name]
    return before.spec.suffix != after.spec.suffix or any(
        getattr(before, part) != getattr(after, part) for part in PARTS
    )


@given(pairs())
def test_between_trees_is_what_differs_or_has_such_a_parent(
    trees: tuple[dict[str, Images], dict[str, Images]],
) -> None:
    then, now = trees
    result = between(Tree(then), now)
    affected = {
        stack: [name for name in contents if differs(name, then.get(stack, {}), contents)]
        for stack, contents in now.items()
    }
    assert {stack: list(of) for stack, of in result.images.items()} == {k: v for k, v in affected.items() if v}
    assert all(reasons for of in result.images.values() for reasons in of.values())
    removed = {
        stack: [name for name in of if name not in now[stack]] if stack in now else []
        for stack, of in then.items()
        if stack not in now or set(of) - set(now[stack])
    }
    assert result.removed == removed


# Then real histories: files, YAML and git, resolved by each tree's own code.

TOY = """
from typing import Any, Literal
from pydantic import Field
from stacks.config.stack_config import StackConfig
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix

class Config(StackConfig):
    flavor: Literal["toy"] = "toy"
    chain: dict[str, Any] = Field(default_factory=dict, description="Image: [word, parent].")

def images(config):
    return [
        ImageSpec(
            name=name, dockerfile=f"{name}/Dockerfile", args={"WORD": word},
            parents={"BASE_IMAGE": Sibling(image=parent) if parent else Outside(reference="debian:12")},
            description=name, licenses="MIT", suffix=Suffix(variant="toy"),
        )
        for name, (word, parent) in config.chain.items()
    ]
"""
FILES = ("x", "y", "README.md")
"""The files that an image's folder can have; the last is ignored."""


@dataclass(frozen=True)
class World:
    """A whole tree: each stack's images (word, parent), and each image's files other than its Dockerfile."""

    stacks: Mapping[str, Mapping[str, tuple[str, str | None]]] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def write(self, root: Path) -> None:
        for old in (root / "stacks").glob("Pulumi.*"):
            old.unlink()
        shutil.rmtree(root / "dockerfiles", ignore_errors=True)
        for stack, chain in self.stacks.items():
            text = json.dumps({"config": {"slipway:flavor": "toy", "slipway:chain": chain}})
            (root / f"stacks/Pulumi.{stack}.yaml").write_text(text)
        for image, files in self.files.items():
            folder = root / "dockerfiles" / image
            folder.mkdir(parents=True)
            ignore = f"*\n!{image}\n{image}/README.md\n"
            dockerfile = f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nARG WORD\nCOPY {image} /\n"
            for name, text in {"Dockerfile": dockerfile, "Dockerfile.dockerignore": ignore, **files}.items():
                (folder / name).write_text(text)

    def built(self, stack: str, image: str) -> object:
        """All that an image is, its parents included: equal exactly when it is not affected."""
        if image not in self.stacks.get(stack, {}):
            return None
        word, parent = self.stacks[stack][image]
        files = {name: content for name, content in self.files[image].items() if name != "README.md"}
        return word, files, parent, self.built(stack, parent) if parent else None


WORDS = st.sampled_from(["one", "two", "$Format:%H$"])
EXPORT = "x export-ignore\ny export-subst\n"
"""Attributes that decide what git archives, and nothing of a build."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A tree with two stacks of the same images, mostly each on the one before."""
    images = NAMES[: draw(st.integers(2, 4))]
    stacks = {
        stack: {
            image: (draw(WORDS), draw(st.sampled_from([*reversed(images[:place]), None])))
            for place, image in enumerate(images)
        }
        for stack in ("s", "t")
    }
    return World(stacks, {image: draw(st.dictionaries(st.sampled_from(FILES), WORDS)) for image in images})


@st.composite
def edited(draw: st.DrawFn, world: World) -> World:
    """A tree like another but for an edit or two."""
    stacks = {stack: dict(chain) for stack, chain in world.stacks.items()}
    files = {image: dict(of) for image, of in world.files.items()}
    for _ in range(draw(st.integers(1, 2))):
        stack, image = draw(st.sampled_from(["s", "t"])), draw(st.sampled_from(NAMES[:4]))
        chain = stacks.setdefault(stack, {})
        match draw(st.sampled_from(["image", "image", "file", "file", "drop", "rename", "whole"])):
            case "image":
                before = [name for name in chain if name < image]
                chain[image] = (draw(WORDS), draw(st.sampled_from([None, *before])))
                files.setdefault(image, {})
            case "file" if image in files:
                files[image][draw(st.sampled_from(FILES))] = draw(WORDS)
            case "rename" if files.get(image):
                files[image]["renamed"] = files[image].pop(draw(st.sampled_from(sorted(files[image]))))
            case "drop":
                stacks[stack] = {
                    name: (word, None if parent == image else parent)
                    for name, (word, parent) in chain.items()
                    if name != image
                }
            case "whole":
                del stacks[stack]
    return World({stack: chain for stack, chain in stacks.items() if chain}, files)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Sequence[World], World, int, bool, World]:
    """Commits of main, a commit of another branch, its parent's place, whether main merges it, and the working tree."""
    commits = [draw(worlds())]
    for _ in range(draw(st.integers(1, 3))):
        commits.append(draw(edited(commits[-1])))
    fork = draw(st.integers(0, len(commits) - 1))
    return commits, draw(edited(commits[fork])), fork, draw(st.booleans()), draw(edited(commits[-1]))


def expected(then: World, now: World) -> set[tuple[str, str]]:
    everything = {(stack, image) for stack, chain in now.stacks.items() for image in chain}
    return {(stack, image) for stack, image in everything if then.built(stack, image) != now.built(stack, image)}


@settings(max_examples=settings().max_examples // 8)  # each makes a repository and runs Slipway on it
@given(histories(), st.data())
def test_affected_in_real_history_is_what_differs(
    history: tuple[Sequence[World], World, int, bool, World], data: st.DataObject
) -> None:
    commits, branch, fork, merged, now = history
    with tempfile.TemporaryDirectory() as folder:
        checkout = make(Path(folder))
        checkout.write("stacks/flavors/toy.py", TOY)
        checkout.write(".gitattributes", data.draw(st.sampled_from(["", EXPORT])))
        checkout.git("init", "-q", "-b", "main")

        def commit(world: World, *parents: str) -> str:
            world.write(checkout.root)
            checkout.git("add", "-A")
            named = [word for parent in parents for word in ("-p", parent)]
            return checkout.git("commit-tree", *named, "-m", "x", checkout.git("write-tree"))

        hashes = [commit(commits[0])]
        for world in commits[1:]:
            hashes.append(commit(world, hashes[-1]))
        side = commit(branch, hashes[fork])
        head = commit(commits[-1], hashes[-1], side) if merged else hashes[-1]
        checkout.git("update-ref", "refs/heads/main", head)
        now.write(checkout.root)
        trees = {
            **dict(zip(hashes, commits, strict=True)),
            side: branch if merged else commits[fork],
            "0" * 40: World(),
        }
        ref = data.draw(st.sampled_from(list(trees)))
        process = subprocess.run(
            [sys.executable, "-m", "stacks", "affected", "--since", ref, "--json"],
            cwd=checkout.root,
            capture_output=True,
            text=True,
            check=True,
        )
    affected = [(job["stack"], image) for job in json.loads(process.stdout)["include"] for image in job["images"]]
    assert len(affected) == len(set(affected))
    assert set(affected) == expected(trees[ref], now)
    for stack, image in affected:
        parent = now.stacks[stack][image][1]
        assert (stack, parent) not in affected or affected.index((stack, parent)) < affected.index((stack, image))
