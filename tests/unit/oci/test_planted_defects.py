"""The defects that images of this kind had, each planted: the guide's table says what catches it first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from oci.binaries import loading
from oci.binaries.elf_file import X86_64
from oci.gpu import gpu_coverage
from stacks import flavors
from stacks.config.stack_file import ROOT
from tests.helpers.elf_writer import LOADER, elf, fatbin
from tests.helpers.image_files import SITE, Files, faults, image
from tests.helpers.refusals import refusal

GUIDE = ROOT / "docs/guides/inspecting-images.md"
TORCH = f"{SITE}/torch/lib/libtorch_cuda.so"
NCCL = "usr/lib64/libnccl.so.2"
HPCX = "opt/hpcx/ucc/lib"
PLUGIN = "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"


def nccl(cuda: str) -> bytes:
    return elf("libnccl.so.2", rodata=f"\0NCCL version 2.30.7+cuda{cuda}\0".encode(), defined=["ncclSend"])


UCC: Files = {
    f"{HPCX}/libucc.so.1": elf("libucc.so.1"),
    f"{HPCX}/ucc/libucc_cl_basic.so": elf("libucc_cl_basic.so"),
    f"{HPCX}/ucc/libucc_mc_cpu.so": elf("libucc_mc_cpu.so"),
}
SOUND: Files = {
    **UCC,
    TORCH: elf("libtorch_cuda.so", ["libnccl.so.2", "libcudart.so.13", "libucc.so.1"], undefined=["ncclSend"]),
    NCCL: nccl("13.3"),
    "usr/lib64/libcudart.so.13": elf("libcudart.so.13"),
    "opt/amazon/efa/lib/libfabric.so.1": elf("libfabric.so.1", provides=["FABRIC_1.8"], defined=["fi_getinfo"]),
    PLUGIN: elf("libnccl-net-ofi.so", ["libfabric.so.1"], needs={"libfabric.so.1": ["FABRIC_1.8"]}),
}
"""What the image of torch for NCCL has of this, as far as loading goes."""
ENVIRONMENT = {
    "Env": [f"LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/amazon/ofi-nccl/lib:/{HPCX}", "NCCL_NET_PLUGIN=ofi"],
}


def without(*paths: str) -> Files:
    return {path: content for path, content in SOUND.items() if path not in paths}


def test_sound_image_has_no_fault() -> None:
    assert faults(SOUND, ENVIRONMENT) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            without(f"{HPCX}/libucc.so.1"),
            f"/{TORCH}: misses libucc.so.1: not in the image; NVIDIA's HPC-X has it",
            id="libucc-missing",
        ),
        pytest.param(without(*UCC), f"/{TORCH}: misses libucc.so.1: not in the image; NVIDIA's HPC-X has it", id="hpcx"),
        pytest.param(
            {**SOUND, NCCL: nccl("12.9")},
            f"/{NCCL}: misses CUDA 13: it is for CUDA 12.9, beside /usr/lib64/libcudart.so.13; needed by /{TORCH}",
            id="nccl-of-another-cuda",
        ),
        pytest.param(
            without("opt/amazon/efa/lib/libfabric.so.1"),
            f"/{PLUGIN}: misses libfabric.so.1: not in the image; Debian's libfabric1 has it",
            id="ofi-nccl-without-libfabric",
        ),
        pytest.param(
            {**SOUND, "opt/amazon/efa/lib/libfabric.so.1": elf("libfabric.so.1", provides=["FABRIC_1.0"])},
            f"/{PLUGIN}: misses version FABRIC_1.8 of /opt/amazon/efa/lib/libfabric.so.1",
            id="ofi-nccl-for-another-libfabric",
        ),
        pytest.param(
            without(PLUGIN),
            f"/{NCCL}: misses libnccl-net-ofi.so, which it opens: not in the image; NCCL_NET_PLUGIN of the image names it; needed by /{TORCH}",
            id="ofi-nccl-gone",
        ),
        pytest.param(
            {**SOUND, f"{SITE}/ext/_C.so": elf("_C.so", ["libtorch_cuda.so"], runpath="$ORIGIN/../torch/lib", undefined=["_ZN3c105older"])},
            f"/{SITE}/ext/_C.so: misses symbol _ZN3c105older: no library defines it",
            id="extension-of-another-torch",
        ),
    ],
)  # fmt: skip
def test_planted_defect_of_loading_is_a_fault(files: Files, expected: str) -> None:
    assert faults(files, ENVIRONMENT) == [expected]


def test_nccl_without_a_runtime_beside_it_is_no_fault() -> None:
    program = elf(needed=["libnccl.so.2"], interpreter=LOADER)
    assert faults({"bin/all_reduce_perf": program, NCCL: nccl("12.9")}) == []


@pytest.mark.parametrize(("cuda", "count"), [("13.3", 0), ("13.3rc1", 0), ("12.9", 1)])
def test_nccl_of_each_release_beside_cuda_13(cuda: str, count: int) -> None:
    assert len(faults({**SOUND, NCCL: nccl(cuda)}, ENVIRONMENT)) == count


def test_extension_without_a_wanted_architecture_is_a_fault() -> None:
    extension = elf("_C.so", gpu=fatbin((2, 80, 0), (2, 90, 0)))
    covered = gpu_coverage.cover(image({f"{SITE}/ext/_C.so": extension}), {"B200": "10.0"})
    expected = f"/{SITE}/ext/_C.so: misses code for B200 (10.0): it has sm_80 sm_90"
    assert [str(fault).replace(", ", " ") for fault in covered.faults()] == [expected]


@pytest.mark.parametrize(
    ("flavor", "keys", "message"),
    [
        ("nccl", {"cuda": "13.2.1", "nccl": "2.18.3-1"}, "'2.18.3-1' is too old for CUDA 13.2.1"),
        ("base", {"cuda": "13.2.1", "extras": {"apex": "0.1"}}, "extras.apex: '0.1': expected a commit"),
        ("base", {"cuda": "13.2.1", "uid": 0}, "unknown key 'uid'"),
    ],
)
def test_planted_defect_of_a_stack_is_refused(flavor: str, keys: dict[str, object], message: str) -> None:
    assert message in refusal(flavors.load, {"flavor": flavor, **keys}, "stack x") or message in refusal(
        lambda: flavors.flavor(flavor).images(flavors.load({"flavor": flavor, **keys}, "stack x"))
    )


def test_bitsandbytes_for_other_cudas_is_no_fault() -> None:
    files: Files = {
        f"{SITE}/bitsandbytes/libbitsandbytes_cuda117.so": elf("b", ["libcudart.so.11.0"]),
        f"{SITE}/bitsandbytes/libbitsandbytes_cuda130.so": elf("b", ["libcudart.so.13"]),
        "usr/lib64/libcudart.so.13": elf("libcudart.so.13"),
    }
    result = loading.resolve(image(files), X86_64)
    assert (result.faults, list(result.optional)) == ([], ["libcudart.so.11.0"])


@cache
def functions() -> set[str]:
    """Return `file::function` of each test."""
    files = (path for path in (ROOT / "tests").rglob("test_*.py"))
    return {
        f"{path.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


def named_tests() -> Iterator[str]:
    table = GUIDE.read_text(encoding="utf-8").partition("## Planted defects")[2].partition("\n## ")[0]
    yield from re.findall(r"`([\w/]+\.py::\w+)`", table)


def test_table_of_defects_names_tests_that_exist() -> None:
    named = set(named_tests())
    assert len(named) >= 10
    assert named <= functions()
