"""What an edit rebuilds: the images and products of the stacks that get another fingerprint."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.identity.content import Contents
from stacks.identity.context import Folder
from stacks.identity.fingerprint import fingerprints
from stacks.spec import CONTEXT
from tests.helpers.contents import checkout_fingerprints

STACKS = ("local", "base-cu132", "nccl-cu132", "efa", "aks-megatron", "universal-cu132")
DOCKERFILES = sorted(path.parent.name for path in (ROOT / CONTEXT).glob("*/Dockerfile"))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / CONTEXT, tmp_path / CONTEXT, symlinks=True))


def rebuilt(context: Path) -> Mapping[str, set[str]]:
    """Return the images and products of each stack whose fingerprint differs from the checkout's, without empty ones."""
    contents = Contents(Folder(context))
    changed = {}
    for stack in STACKS:
        _, specs = plan.resolve(stack)
        before, after = checkout_fingerprints(specs), fingerprints([contents.of(spec) for spec in specs])
        changed[stack] = {name for name in after if after[name] != before[name]}
    return {stack: names for stack, names in changed.items() if names}


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize("image", DOCKERFILES)
def test_comment_in_a_dockerfile_rebuilds_nothing(context: Path, image: str) -> None:
    path = context / image / "Dockerfile"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(f"# A comment.\n\n{line}" if line.startswith(("RUN", "FROM")) else line for line in lines))
    assert rebuilt(context) == {}


def test_readme_rebuilds_nothing(context: Path) -> None:
    for path in context.glob("*/README.md"):
        add(path, "More.\n")
    assert rebuilt(context) == {}


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        ("deepspeed", {"deepspeed-source", "deepspeed-wheel", "torch-extras"}),
        ("vision", {"vision-source", "vision-wheel", "torch", "torch-extras"}),
    ],
)
def test_recipe_rebuilds_its_component_and_what_has_it(context: Path, recipe: str, names: set[str]) -> None:
    add(context / "wheels/recipes" / recipe, "# A comment.\n")
    universal = {name for name in names if not name.startswith("torch")} | {"dist", "train"}
    assert rebuilt(context) == {"base-cu132": names, "nccl-cu132": names} | (
        {"universal-cu132": universal} if recipe == "vision" else {}
    )


def test_check_of_torch_rebuilds_no_product(context: Path) -> None:
    add(context / "torch/checks/build/40-matmul.py", "# A comment.\n")
    assert rebuilt(context) == {
        "local": {"torch"},
        "base-cu132": {"torch", "torch-extras"},
        "nccl-cu132": {"torch", "torch-extras"},
        "universal-cu132": {"train"},
    }


def test_instruction_of_the_wheels_rebuilds_no_source(context: Path) -> None:
    path = context / "wheels/Dockerfile"
    stage = "FROM ${BASE_IMAGE} AS builder\n"
    assert stage in path.read_text()
    path.write_text(path.read_text().replace(stage, f"{stage}ENV A=b\n"))
    _, specs = plan.resolve("nccl-cu132")
    sources = {spec.name for spec in specs if spec.target == "source"}
    assert rebuilt(context)["nccl-cu132"] == {spec.name for spec in specs} - sources - {"nccl-tests"}
