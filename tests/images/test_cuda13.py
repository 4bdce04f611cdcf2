"""The ``cu132`` chains of real parts: the extensions hold the machine code that was asked for, the libraries are NVIDIA's."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.upstreams.upstreams import World
from tests.images import cuda13
from tests.images.chain import Chain, remove
from tests.images.engine import DOCKERFILES, docker

pytestmark = (
    pytest.mark.slow
)  # gigabytes of wheels; test_local.py has a real torch, family the stages of a `base` stack

ARCHS, OTHER_ARCHS = "9.0 10.0+PTX", "8.0 8.6"
FUSED_ADAM = "deepspeed/ops/adam/fused_adam_op"
PACKAGES = "/opt/venv/lib/python3*/site-packages"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = cuda13.world()
    yield world
    world.server.close()


@pytest.fixture(scope="module")
def base(world: World) -> Iterator[Chain]:
    built = cuda13.built(world, "base-cu132", ARCHS)
    yield built
    remove(built)


@pytest.fixture(scope="module")
def chain(world: World) -> Iterator[Chain]:
    built = cuda13.built(world, "nccl-cu132", ARCHS)
    yield built
    remove(built)


CHAINS = pytest.mark.parametrize("fixture", ["base", "chain"])


@CHAINS
def test_torch_is_the_published_build_of_its_cuda(fixture: str, request: pytest.FixtureRequest) -> None:
    extras = request.getfixturevalue(fixture).image("torch-extras")
    output = extras.run("python", "-c", "import torch; print(torch.__version__, torch.version.cuda)")
    assert output.split() == ["2.15.0+cu132", "13.2"]


@CHAINS
def test_fused_adam_has_code_of_requested_archs_alone(
    fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    extras = request.getfixturevalue(fixture).image("torch-extras")
    assert cuda13.code(extras, f"{PACKAGES}/{FUSED_ADAM}*.so", cuda13.cuobjdump(tmp_path)) == ({"90", "100"}, {"100"})


@CHAINS
def test_deepspeed_has_its_version_and_compiled_fused_adam(fixture: str, request: pytest.FixtureRequest) -> None:
    program = (
        "from deepspeed.git_version_info import *; print(version, [op for op, has in installed_ops.items() if has])"
    )
    output = request.getfixturevalue(fixture).image("torch-extras").run("python", "-c", program)
    assert output.splitlines()[-1] == f"{cuda13.DEEPSPEED} ['fused_adam']"


def test_base_images_have_a_compiler_and_no_nvcc(base: Chain) -> None:
    for name in ("torch", "torch-extras"):
        compilers = base.image(name).run(
            "sh", "-c", "for each in nvcc cmake gcc g++; do command -v $each || true; done"
        )
        assert compilers.split() == ["/usr/bin/gcc", "/usr/bin/g++"]


def test_nccl_image_compiles_extension_with_nvcc(chain: Chain) -> None:
    image = chain.image("torch")
    assert "Cuda compilation tools, release 13.2, V13.2.78" in image.run("nvcc", "--version")
    check = (DOCKERFILES / "torch/checks/nccl/10-extension.py").read_text()
    image.run("python", "-", options=("--env=TORCH_CUDA_ARCH_LIST=12.0",), text=check)
    # CUDA 13 compiles for nothing older than 7.5.
    assert "Unsupported gpu architecture 'compute_70'" in image.fails(
        "python", "-", options=("--env=TORCH_CUDA_ARCH_LIST=7.0",), text=check
    )


def test_nccl_is_the_release_of_stack(chain: Chain) -> None:
    program = """
import ctypes
import torch
library = ctypes.CDLL("/usr/lib/x86_64-linux-gnu/libnccl.so.2")
version = ctypes.c_int()
assert library.ncclGetVersion(ctypes.byref(version)) == 0
library.ncclGetErrorString.restype = ctypes.c_char_p
print(version.value, library.ncclGetErrorString(3).decode())
"""
    assert chain.image("torch").run("python", "-", text=program).startswith("23004 internal error")


def test_nccl_tests_have_code_of_requested_archs(chain: Chain) -> None:
    assert cuda13.code(chain.image("nccl-tests"), "/opt/nccl-tests/build/all_reduce_perf") == ({"90", "100"}, {"100"})


def test_fused_adam_of_other_archs_differs(world: World, chain: Chain, tmp_path: Path) -> None:
    have = {name: tag for name, tag in chain.names.items() if name != "deepspeed-wheel"}
    wheel = cuda13.built(world, "nccl-cu132", OTHER_ARCHS, have).image("deepspeed-wheel")
    container = docker("create", wheel.tag, "none").stdout.strip()
    docker("cp", f"{container}:/dist", tmp_path)
    docker("rm", container)
    docker("rmi", "--force", wheel.tag)
    with zipfile.ZipFile(next(tmp_path.glob("dist/*.whl"))) as opened:
        library = opened.extract(next(name for name in opened.namelist() if name.startswith(FUSED_ADAM)), tmp_path)
    options = ("--volume", f"{library}:/media/library.so:ro")
    assert cuda13.code(chain.image("torch-extras"), "/media/library.so", *options) == ({"80", "86"}, set())
