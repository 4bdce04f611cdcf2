"""The checks of the wheels: each says no to what it is there for."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images import chain
from tests.images.engine import CHECKED, DOCKERFILES, Image, build, docker, remove, unique
from tests.images.family.conftest import Built

HEADER = "torch/include/ATen/Config.h"
PARENT = "FROM {}\nENV HPCX_UCC_DIR=/opt/hpcx/ucc HPCX_UCX_DIR=/opt/hpcx/ucx\nRUN mkdir -p /opt/magma\n"
"""The stack's builder with what other stacks have. It has an environment, so that nothing is installed into it."""

FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "10-version": ({"VERSION": "9.9"}, "torch-2.0.1-py3-none-any.whl was asked for at version 9.9"),
    "20-machine-code": ({"ARCH_LIST": "9.0 12.0"}, "no machine code for 9.0; the wheel has it for: nothing"),
    "30-lapack": ({"LAPACK": "0"}, "torch was built without a LAPACK: torch.linalg would fail on the CPU"),
    "40-links": ({"VARIANT": "nccl"}, "nothing in torch is linked with libucc.so.1"),
    "50-magma": ({}, "torch was built without MAGMA: it has nothing of /opt/magma"),
    "70-extensions": (
        {"EXTENSIONS": "magma amp_C", "MAGMA": "magma_dgetrf"},
        "torch was built without amp_C: the build says why, and what it did not find",
    ),
    "80-nvshmem": (
        {"COMPONENT": "deepep"},
        "deepep was built without NVSHMEM: none of its libraries is linked with it",
    ),
    "60-libraries": (
        {"CUSPARSELT_VERSION": "0.8.1", "MAGMA": "magma_dgetrf"},
        "torch was built without cusparselt: none of its libraries is linked with it",
    ),
}
"""Check -> what is asked of a wheel that is empty but for a header, and what the check then says."""


@pytest.fixture(scope="module")
def builder(built: Built) -> Iterator[str]:
    """The image in which the stack's torch was built, out of the engine's cache, with what other stacks have."""
    images = built("base-cu121")
    arguments = chain.checks_arguments(images.planned["torch-wheel"], images.names)
    stage, parent = Image(unique("builder")), Image(unique("builder"))
    done = build(stage.tag, arguments, "--target=builder", image="wheels")
    assert done.returncode == 0, done.stdout[-6000:]
    docker("build", "--quiet", f"--tag={parent.tag}", "-", text=PARENT.format(stage.tag))
    yield parent.tag
    remove(parent)
    remove(stage)


def test_checks_of_the_wheels_have_a_fault_each() -> None:
    assert sorted(FAULTS) == sorted(path.name for path in (DOCKERFILES / "wheels/checks").iterdir())


@pytest.mark.parametrize("check", sorted(FAULTS))
def test_check_of_faulty_wheel_fails(built: Built, builder: str, tmp_path: Path, check: str) -> None:
    asked, message = FAULTS[check]
    images = built("base-cu121")
    planned = images.planned["torch-wheel"]
    arguments = chain.checks_arguments(planned, images.names)
    wheel = unique("wheel")
    (tmp_path / "dist").mkdir()
    with zipfile.ZipFile(tmp_path / "dist/torch-2.0.1-py3-none-any.whl", "w") as archive:
        archive.writestr("torch-2.0.1.dist-info/METADATA", "Name: torch\n")
        archive.writestr("torch/magma.so", asked.get("MAGMA", ""))
        archive.writestr(HEADER, f"#define AT_BUILD_WITH_LAPACK() {asked.get('LAPACK', '1')}\n")
    (tmp_path / "dist/extensions").write_text(asked.get("EXTENSIONS", ""))
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY dist /dist\n")
    docker("build", "--quiet", f"--tag={wheel}", tmp_path)
    try:
        given = {
            **arguments,
            "VERSION": "2.0.1",
            "ARCH_LIST": "",
            **asked,
            "BASE_IMAGE": builder,
            "CHECKED_IMAGE": wheel,
        }
        done = build("", given, CHECKED, image="wheels")
    finally:
        docker("image", "rm", "--force", wheel)
    assert done.returncode != 0
    assert message in done.stdout
    assert f"check failed: {check}" in done.stdout
