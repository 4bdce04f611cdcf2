"""What an edit rebuilds: the images and products of the stacks that get another fingerprint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from containers.dockerfile.context import Folder
from stacks import plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.identity.content import CheckoutContents
from stacks.identity.fingerprint import fingerprints
from stacks.spec import CONTEXT, ImageSpec
from tests.helpers.contents import checkout_contents, checkout_fingerprints
from tests.helpers.every import every

FAMILY = ("base-cu132", "nccl-cu132")
STACKS = ("local", "base-cu132", "nccl-cu132", "efa", "aks-megatron", "universal-cu132")
DOCKERFILES = sorted(path.parent.name for path in (ROOT / CONTEXT).glob("*/Dockerfile"))


@cache
def specs_of(stack: str) -> tuple[ImageSpec, ...]:
    """Return the images and products of a stack."""
    return tuple(plan.resolve(stack)[1])


@cache
def checkout_fingerprints_of(stack: str) -> Mapping[str, str]:
    """Return the fingerprints of a stack's images and products, built from this checkout."""
    return checkout_fingerprints(specs_of(stack))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(ROOT / CONTEXT, tmp_path_factory.mktemp("edits") / CONTEXT, symlinks=True))


@pytest.fixture
def context(copied: Path) -> Iterator[Path]:
    """The folder of the Dockerfiles to edit: one for all tests, in which each mends what it has changed."""

    def there() -> dict[Path, tuple[int, int]]:
        files = [Path(folder, name) for folder, _, names in os.walk(copied) for name in names]
        return {file: (file.lstat().st_mtime_ns, file.lstat().st_size) for file in files}

    before = there()
    yield copied
    after = there()
    for path in {*before, *after}:
        if path not in before:
            path.unlink()
        elif path not in after or before[path] != after[path]:
            shutil.copy2(ROOT / CONTEXT / path.relative_to(copied), path, follow_symlinks=False)


def rebuilt(context: Path) -> Mapping[str, set[str]]:
    """Return the images and products of each stack whose fingerprint differs from the checkout's, without empty ones."""
    contents = CheckoutContents(lambda _: Folder(context))
    changed = {}
    for stack in STACKS:
        before = checkout_fingerprints_of(stack)
        after = fingerprints([contents.of(spec) for spec in specs_of(stack)])
        changed[stack] = {name for name in after if after[name] != before[name]}
    return {stack: names for stack, names in changed.items() if names}


def compiled(changed: Mapping[str, set[str]]) -> set[str]:
    """Return the components that an empty machine compiles again; what has not changed is in the registry."""
    products = {name for names in changed.values() for name in names if name.endswith(("-wheel", "-build"))}
    # These compile what they add to NVIDIA's image.
    whole = {"efa", "megatron-lm"} & {name for names in changed.values() for name in names}
    return {name.rpartition("-")[0] for name in products} | whole


def built(stack: str, *, but: tuple[str, ...] = ()) -> set[str]:
    """Return the images and products of a stack, without those whose name ends so."""
    return {spec.name for spec in specs_of(stack) if not spec.name.endswith(but or "/")}


def wheels(stack: str) -> set[str]:
    """Return the wheels of a stack."""
    return {name for name in built(stack) if name.endswith("-wheel")}


def checked(context: Path) -> Mapping[str, set[str]]:
    """Return the images of each stack whose checks run again, without empty ones."""
    contents = CheckoutContents(lambda _: Folder(context))
    again = {}
    for stack in STACKS:
        pairs = [(checkout_contents().of(spec), contents.of(spec)) for spec in specs_of(stack)]
        again[stack] = {
            after.spec.name
            for before, after in pairs
            if before.checks and after.checks and before.checks.folder != after.checks.folder
        }
    return {stack: names for stack, names in again.items() if names}


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_comment_in_a_dockerfile_rebuilds_nothing(context: Path) -> None:
    """In all of them at once: what is built again names its Dockerfile."""
    for image in DOCKERFILES:
        path = context / image / "Dockerfile"
        lines = path.read_text().splitlines(keepends=True)
        commented = (f"# A comment.\n\n{line}" if line.startswith(("RUN", "FROM")) else line for line in lines)
        path.write_text("".join(commented))
    assert rebuilt(context) == {}


def test_readme_rebuilds_nothing(context: Path) -> None:
    for path in context.glob("*/README.md"):
        add(path, "More.\n")
    assert rebuilt(context) == {}


@pytest.mark.parametrize(
    ("recipe", "edit", "names"),
    [
        ("deepspeed", ("DS_BUILD_OPS=0", "DS_BUILD_OPS=1"), {"deepspeed-wheel", "torch-extras"}),
        ("deepspeed", ("jobs='2 32'", "jobs='3 32'"), {"deepspeed-wheel", "torch-extras"}),
        # The engine knows a file by its bytes, comments too.
        ("deepspeed", ("environment()", "# A comment.\nenvironment()"), {"deepspeed-wheel", "torch-extras"}),
        ("vision", ("FORCE_CUDA=1", "FORCE_CUDA=0"), {"vision-wheel", "torch", "torch-extras"}),
        ("flash-attention3", ("einops", "einops<1"), {"flash-attention3-wheel", "torch", "torch-extras"}),
    ],
)
def test_recipe_compiles_its_component_alone(
    context: Path, recipe: str, edit: tuple[str, str], names: set[str]
) -> None:
    replace(context / "wheels/recipes" / recipe, *edit)
    universal = {"vision-wheel", "dist", "train"} if recipe == "vision" else set()
    have = {stack: names & built(stack) for stack in FAMILY if f"{recipe}-wheel" in built(stack)}
    changed = rebuilt(context)
    assert changed == {**have, **({"universal-cu132": universal} if universal else {})}
    assert compiled(changed) == {recipe}


def test_source_of_a_component_is_fetched_and_compiled(context: Path) -> None:
    replace(context / "wheels/sources/deepspeed", "deepspeedai/", "example/")
    names = {"deepspeed-source", "deepspeed-wheel", "torch-extras"}
    changed = rebuilt(context)
    assert changed == dict.fromkeys(FAMILY, names)
    assert compiled(changed) == {"deepspeed"}


def test_new_component_rebuilds_nothing(context: Path) -> None:
    for folder in ("sources", "recipes"):
        (context / "wheels" / folder / "mamba").write_text("# A new extra.\n")
    assert rebuilt(context) == {}


ON_TESTS = {"nccl-tests", "torch", "torch-extras"}
"""nccl-tests, and the images on it."""


@pytest.mark.parametrize(
    ("path", "old", "new", "tool"),
    [
        ("hpc-tools/perftest/build", "set -eu", "set -eux", "perftest"),
        ("hpc-tools/gdrcopy/build", "set -eu", "set -eux", "gdrcopy"),
        ("hpc-tools/nvbandwidth/build", "set -eu", "set -eux", "nvbandwidth"),
        ("hpc-tools/Dockerfile", "ARG PERFTEST_VERSION=", "ARG PERFTEST_VERSION=1", "perftest"),
        ("hpc-tools/Dockerfile", "ARG GDRCOPY_VERSION=", "ARG GDRCOPY_VERSION=1", "gdrcopy"),
        ("hpc-tools/Dockerfile", "ARG NVBANDWIDTH_VERSION=", "ARG NVBANDWIDTH_VERSION=1", "nvbandwidth"),
        ("hpc-tools/Dockerfile", "ARG NCCL_TESTS_VERSION=", "ARG NCCL_TESTS_VERSION=1", "nccl-tests"),
    ],
)
def test_tool_of_nccl_tests_compiles_itself_alone(context: Path, path: str, old: str, new: str, tool: str) -> None:
    replace(context / path, old, new)
    changed = rebuilt(context)
    assert changed == {"nccl-cu132": {f"{tool}-build", *ON_TESTS}}
    assert compiled(changed) == {tool}


@pytest.mark.parametrize(
    ("path", "old", "new", "others"),
    [
        ("nccl-tests/layers/install-dcgm", "set -eu", "set -eux", {}),
        ("nccl-tests/layers/install-system", "openssh-server", "openssh-server rsync", {}),
        ("nccl-tests/Dockerfile", 'ARG DCGM_VERSION=""', "ARG DCGM_VERSION=1", {}),
        # efa has the same sshd.
        ("common/multinode/skeleton/usr/local/sbin/start-sshd", "set -eu", "set -eux", {"efa": {"efa"}}),
        ("common/multinode/write-environment", "set -eu", "set -eux", {"efa": {"efa"}}),
    ],
)
def test_dcgm_and_sshd_compile_no_wheel(
    context: Path, path: str, old: str, new: str, others: dict[str, set[str]]
) -> None:
    replace(context / path, old, new)
    changed = rebuilt(context)
    assert changed == {"nccl-cu132": ON_TESTS, **others}
    assert compiled(changed) == set(others)


def test_script_of_nccls_tests_compiles_them_alone(context: Path) -> None:
    replace(context / "common/build/nccl-tests", "set -eu", "set -eux")
    changed = rebuilt(context)
    assert changed == {"nccl-cu132": {"nccl-tests-build", *ON_TESTS}, "efa": {"efa"}}
    assert compiled(changed) == {"nccl-tests", "efa"}


@every(
    "key, value, kept",
    [
        ("nccl", "2.29.7-1", ("-source", "hpcx-build", "gdrcopy-build", "perftest-build", "nvbandwidth-build")),
        ("hpcx", "v1/hpcx-v1.tbz", ("-source", "gdrcopy-build", "perftest-build", "nvbandwidth-build")),
    ],
)
def test_nccl_and_hpcx_compile_what_is_linked_with_them(key: str, value: str, kept: tuple[str, ...]) -> None:
    stack = "nccl-cu132"
    before, after = (
        checkout_fingerprints(plan.specs({**read_stack(stack), **more}, stack)[1]) for more in ({}, {key: value})
    )
    assert {name for name in after if after[name] != before[name]} == built(stack, but=kept)


def test_description_rebuilds_the_image_and_no_product() -> None:
    specs, before = specs_of("nccl-cu132"), checkout_fingerprints_of("nccl-cu132")
    for name, names in (("nccl-tests", ON_TESTS), ("torch", {"torch", "torch-extras"}), ("torch-wheel", set())):
        edited = [spec.model_copy(update={"description": "Other"}) if spec.name == name else spec for spec in specs]
        after = checkout_fingerprints(edited)
        assert {other for other in after if after[other] != before[other]} == names


def test_way_to_install_packages_rebuilds_all(context: Path) -> None:
    """No less: each image is made of packages that it installs, and this script decides which of them."""
    replace(context / "common/layers/with-apt", 'Acquire::Retries "3"', 'Acquire::Retries "4"')
    changed = rebuilt(context)
    assert changed == {stack: built(stack) for stack in STACKS}


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("add-user", ("-source", "-wheel", "-build", "nccl-builder", "install", "dist")),
        ("install-wheels", ("-source", "-wheel", "-build", "nccl-builder", "nccl-tests", "install", "dist")),
        ("install-nccl", ("-source", "hpcx-build", "gdrcopy-build", "perftest-build", "nvbandwidth-build")),
    ],
)
def test_shared_script_rebuilds_no_product_without_it(context: Path, script: str, kept: tuple[str, ...]) -> None:
    add(context / "common/layers" / script, "true\n")
    assert rebuilt(context)["nccl-cu132"] == built("nccl-cu132", but=kept)


@pytest.mark.parametrize(
    ("check", "again"),
    [
        (
            "torch/checks/build/40-arithmetic.py",
            {"local": {"torch"}, "base-cu132": {"torch"}, "nccl-cu132": {"torch"}, "universal-cu132": {"train"}},
        ),
        ("nccl-tests/checks/mpi", {"nccl-cu132": {"nccl-tests"}}),
        ("torch-extras/checks/build/10-extras.py", {"base-cu132": {"torch-extras"}, "nccl-cu132": {"torch-extras"}}),
        ("efa/checks/build/10-removed", {"efa": {"efa"}}),
        ("megatron/checks/build/10-user", {"aks-megatron": {"megatron-lm"}}),
        ("universal/checks/build/10-torch.sh", {"universal-cu132": {"train"}}),
    ],
)
def test_check_of_its_own_runs_again_and_rebuilds_nothing(
    context: Path, check: str, again: dict[str, set[str]]
) -> None:
    add(context / check, "# A comment.\n")
    assert rebuilt(context) == {}
    assert checked(context) == again


def test_shared_check_runs_again_and_rebuilds_nothing(context: Path) -> None:
    add(context / "common/checks/run", "# A comment.\n")
    assert rebuilt(context) == {}
    assert checked(context) == {
        "local": {"torch"},
        "base-cu132": {"torch", "torch-extras"} | wheels("base-cu132"),
        "nccl-cu132": {"nccl-tests", "torch", "torch-extras"} | wheels("nccl-cu132"),
        "efa": {"efa"},
        "aks-megatron": {"megatron-lm"},
        "universal-cu132": {"train"} | wheels("universal-cu132"),
    }


def test_check_of_the_wheels_compiles_none(context: Path) -> None:
    add(context / "wheels/checks/20-machine-code", "# A comment.\n")
    assert rebuilt(context) == {}
    assert checked(context) == {stack: wheels(stack) for stack in ("base-cu132", "nccl-cu132", "universal-cu132")}


def test_instruction_of_the_wheels_rebuilds_no_source(context: Path) -> None:
    stage = "FROM ${BASE_IMAGE} AS builder\n"
    replace(context / "wheels/Dockerfile", stage, f"{stage}ENV A=b\n")
    kept = ("-source", "-build", "nccl-builder", "nccl-tests")
    assert rebuilt(context)["nccl-cu132"] == built("nccl-cu132", but=kept)
