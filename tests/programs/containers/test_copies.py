"""Copies of one library in one process: real libraries, and what the real loader makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from containers.image.copies.library_copies import Copies
from tests.helpers.elf_writer import LOADER, elf
from tests.unit.containers import test_copies as copies
from tests.unit.containers.test_copies import SITE, TAG, Site

site = copies.site


def test_copies_of_two_wheels_are_each_called_by_their_own(site: Site) -> None:
    one, other = (
        site.library("a.libs/libgomp-11111111.so.1.0.0", 1),
        site.library("b.libs/libgomp-22222222.so.1.0.0", 2),
    )
    first = site.module(f"a/m{TAG}", [one], rpath="$ORIGIN/../a.libs")
    second = site.module(f"b/m{TAG}", [other], rpath="$ORIGIN/../b.libs")
    assert site.asked(first, second) == [1, 2]
    [found] = site.copies()
    assert (found.family, found.process, found.how, found.case) == ("OpenMP", "the Python of /opt/venv", "both", None)
    assert [copy.by for copy in found.copies] == [(f"/{SITE}/a/m{TAG}",), (f"/{SITE}/b/m{TAG}",)]
    assert [copy.path.rpartition("/")[2] for copy in found.copies] == [one.name, other.name]
    assert found.mixing == "all are loaded, each called by those that need it"


@pytest.mark.parametrize(
    ("versions", "expected"), [(("", ""), 1), (("OMP_1.0", "OMP_1.0"), 1), (("OMP_1.0", "OMP_2.0"), 2)]
)
def test_copy_that_is_everywhere_serves_what_comes_later(site: Site, versions: tuple[str, str], expected: int) -> None:
    one = site.library("torch/lib/libgomp.so.1", 1, version=versions[0])
    other = site.library("b.libs/libgomp-22222222.so.1.0.0", 2, version=versions[1])
    everywhere = site.module("torch/lib/libtorch_global_deps.so", [one], rpath="$ORIGIN")
    later = site.module(f"b/m{TAG}", [other], rpath="$ORIGIN/../b.libs")
    assert site.asked(everywhere, later)[1] == expected
    assert site.asked(later, everywhere)[0] == 2
    [found] = site.copies()
    mixed = f"what is loaded after /{SITE}/torch/lib/libtorch_global_deps.so calls /{SITE}/torch/lib/libgomp.so.1"
    assert (mixed in found.mixing) is (expected == 1), found.mixing
    assert found.how == ("mixed" if expected == 1 else "both")
    assert found.copies[1].everywhere == (f"/{SITE}/torch/lib/libtorch_global_deps.so" if expected else "")


def test_copies_of_one_name_serve_whoever_comes_first(site: Site) -> None:
    one = site.library("nvidia/nvshmem/lib/libnvshmem_host.so.3", 1)
    other = site.library("opt/nvshmem/lib/libnvshmem_host.so.3", 2)
    first = site.module(f"torch/m{TAG}", [one], rpath="$ORIGIN/../nvidia/nvshmem/lib")
    second = site.module(f"deep_ep{TAG}", [other], rpath="$ORIGIN/../../../../nvshmem/lib")
    assert (site.asked(first, second), site.asked(second, first)) == ([1, 1], [2, 2])
    [found] = [one for one in site.copies() if one.how == "first"]
    assert found.mixing == "those named libnvshmem_host.so.3 serve all as the first one that is loaded"
    fault = found.fault()
    assert fault is not None
    assert "NVSHMEM" in fault.names
    assert "github.com/sgl-project/sglang/pull/12949" in str(fault)


def test_copy_of_one_name_serves_no_need_of_another(site: Site) -> None:
    """Modules of Numba need `libgomp.so.1.0.0`, a file whose soname is `libgomp.so.1`."""
    one = site.library("torch/lib/libgomp.so.1", 1)
    other = site.library("opt/lib/libgomp.so.1.0.0", 2)
    first = site.module(f"torch/_C{TAG}", [one], rpath="$ORIGIN/lib")
    second = site.module(f"numba{TAG}", [other], rpath="$ORIGIN/../../../../lib")
    site.library("opt/lib/libgomp.so.1.0.0", 2, soname="libgomp.so.1")
    assert (site.asked(first, second), site.asked(second, first)) == ([1, 2], [2, 2])
    [found] = site.copies()
    assert found.mixing.endswith("the first one that is loaded, but for what needs libgomp.so.1.0.0")


def test_library_path_that_hides_own_nixl_is_a_fault(site: Site) -> None:
    own = site.library("tensorrt_llm/libs/nixl/libnixl.so", 1)
    site.library("opt/nvidia/nvda_nixl/lib/libnixl.so", 2)
    wrapper = site.module(f"tensorrt_llm/libs/wrapper{TAG}", [own], runpath="$ORIGIN/nixl")
    assert site.asked(wrapper) == [1]
    assert site.copies() == []
    folder = site.root / "opt/nvidia/nvda_nixl/lib"
    assert site.asked(wrapper, environment={"LD_LIBRARY_PATH": str(folder)}) == [2]
    [found] = site.copies("LD_LIBRARY_PATH=/opt/nvidia/nvda_nixl/lib")
    assert (found.family, found.how) == ("NIXL", "hidden")
    assert found.fault() is not None


def test_other_nixl_that_is_loaded_before_the_package_is_a_fault(site: Site) -> None:
    own = site.library(".nixl_cu12.mesonpy.libs/libnixl.so", 1)
    other = site.library("opt/nvidia/nvda_nixl/lib/libnixl.so", 2)
    bindings = site.module(f"nixl_cu12/_bindings{TAG}", [own], rpath="$ORIGIN/../.nixl_cu12.mesonpy.libs")
    record = site.folder / "nixl_cu12-1.5.1.dist-info/RECORD"
    record.parent.mkdir()
    paths = [".nixl_cu12.mesonpy.libs/libnixl.so", f"nixl_cu12/_bindings{TAG}"]
    record.write_text("".join(f"{path},sha256=AA,1\n" for path in paths), encoding="utf-8")
    record.with_name("METADATA").write_text("Name: nixl-cu12\nVersion: 1.5.1\n", encoding="utf-8")
    assert site.copies() == []
    core = site.module(f"dynamo/_core{TAG}", [other], rpath="/opt/nvidia/nvda_nixl/lib:" + str(other.parent))
    assert site.asked(core, bindings) == [2, 2]
    [found] = site.copies()
    assert (found.family, found.how) == ("NIXL", "first")
    assert "the bindings miss symbols of the one that is loaded first" in str(found.fault())


def test_module_of_two_copies_calls_its_first_one(site: Site) -> None:
    one, other = site.library("p.libs/libprotobuf-11111111.so.32", 1), site.library("p.libs/libprotobuf.so.25", 2)
    module = site.module(f"p/m{TAG}", [one, other], rpath="$ORIGIN/../p.libs")
    assert site.asked(module) == [1]
    [found] = site.copies()
    assert found.mixing.endswith("calls /" + f"{SITE}/p.libs/{one.name} by the names that both have")


def test_ucx_of_old_nixl_beside_another_is_a_fault(site: Site) -> None:
    own = site.library("nixl_cu13.libs/libucs-14c218c5.so.0.0.0", 1)
    other = site.library("opt/hpcx/ucx/lib/libucs.so.0", 2)
    plugin = site.module(
        ".nixl_cu13.mesonpy.libs/plugins/libplugin_UCX.so", [own], rpath="$ORIGIN/../../nixl_cu13.libs"
    )
    transport = site.module(f"torch/_C{TAG}", [other])
    assert site.asked(plugin, transport, environment={"LD_LIBRARY_PATH": str(other.parent)}) == [1, 2]

    def found() -> Copies:
        [both] = [one for one in site.copies("LD_LIBRARY_PATH=/opt/hpcx/ucx/lib") if one.how == "both"]
        return both

    assert found().case is None
    for wheel, breaks in {"nixl-0.6.0": True, "nixl_cu13-1.3.2": True, "nixl_cu13-1.4.0": False}.items():
        record = site.folder / f"{wheel}.dist-info/RECORD"
        record.parent.mkdir()
        record.write_text("nixl_cu13.libs/libucs-14c218c5.so.0.0.0,sha256=AA,1\n", encoding="utf-8")
        assert wheel.replace("_", "-") in {copy.owner.replace(" ", "-") for copy in found().copies}
        assert ("github.com/ai-dynamo/dynamo/pull/12558" in str(found().fault())) is breaks
        record.unlink()


def test_ucx_that_python_preloads_is_mixed_and_a_fault(site: Site) -> None:
    own = site.library("nixl_cu12.libs/libucs-14c218c5.so.0.0.0", 1)
    other = site.library("opt/hpcx/ucx/lib/libucs.so.0", 2)
    plugin = site.module(f"a/m{TAG}", [own], rpath="$ORIGIN/../nixl_cu12.libs")
    assert site.asked(plugin, environment={"LD_PRELOAD": str(other)}) == [2]
    [found] = [one for one in site.copies("LD_PRELOAD=/opt/hpcx/ucx/lib/libucs.so.0") if one.how == "mixed"]
    assert "what is loaded after LD_PRELOAD calls /opt/hpcx/ucx/lib/libucs.so.0" in found.mixing
    assert found.fault() is not None
    # A library of the program itself is as early in each search as a preloaded one.
    program = site.root / "opt/venv/bin/python3.11"
    program.parent.mkdir(parents=True)
    program.write_bytes(elf(needed=["libucs.so.0"], interpreter=LOADER))
    [found] = [one for one in site.copies("LD_LIBRARY_PATH=/opt/hpcx/ucx/lib") if one.how == "mixed"]
    assert "what is loaded after /opt/venv/bin/python3.11 calls /opt/hpcx/ucx/lib/libucs.so.0" in found.mixing


def test_parts_of_two_cudnns_in_one_process_are_a_fault(site: Site) -> None:
    graph = site.library("nvidia/cudnn/lib/libcudnn_graph.so.9", 1)
    engines = site.library("opt/cudnn/lib/libcudnn_engines_tensor_ir.so.9", 2)
    site.module(f"torch/_C{TAG}", [graph], rpath="$ORIGIN/../nvidia/cudnn/lib")
    [found] = [one for one in site.copies(f"LD_LIBRARY_PATH={Path('/opt/cudnn/lib')}") if one.how == "parts"]
    assert [copy.path.rpartition("/")[2] for copy in found.copies] == [graph.name, engines.name]
    fault = found.fault()
    assert fault is not None
    assert "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH" in fault.reason


def test_file_found_by_its_name_alone_is_named(site: Site) -> None:
    own = site.library("nvidia/nccl/lib/libnccl.so.2", 1)
    other = site.library("opt/nccl/lib/libnccl.so.2", 2)
    module = site.module(f"torch/_C{TAG}", [own], rpath="$ORIGIN/../nvidia/nccl/lib")
    by_name = Path("libnccl.so.2")
    environment = {"LD_LIBRARY_PATH": str(other.parent)}
    assert site.asked(module, environment=environment) == [1]
    assert site.asked(by_name, environment=environment) == [None]
    [found] = site.copies("LD_LIBRARY_PATH=/opt/nccl/lib")
    assert (found.how, found.case) == ("name", None)
    assert [copy.path for copy in found.copies] == [
        f"/{SITE}/nvidia/nccl/lib/libnccl.so.2",
        "/opt/nccl/lib/libnccl.so.2",
    ]


def test_one_copy_and_equal_copies_are_no_line(site: Site) -> None:
    one = site.library("a.libs/libgomp-11111111.so.1.0.0", 1)
    other = site.folder / "b.libs" / one.name
    other.parent.mkdir()
    other.write_bytes(one.read_bytes())
    site.module(f"a/m{TAG}", [one], rpath="$ORIGIN/../a.libs")
    site.module(f"b/m{TAG}", [other], rpath="$ORIGIN/../b.libs")
    assert site.copies() == []


def test_copies_that_a_repair_named_alike_are_no_line(site: Site) -> None:
    """As libstdc++ in wheels for musl: auditwheel names it by its hash, and then gives it another RPATH."""
    one, other = (site.library(f"{folder}.libs/libstdc++-5d72f927.so.6", number) for number, folder in enumerate("ab"))
    first = site.module(f"a/m{TAG}", [one], rpath="$ORIGIN/../a.libs")
    second = site.module(f"b/m{TAG}", [other], rpath="$ORIGIN/../b.libs")
    assert site.asked(first, second) == [0, 0], "the first one serves all"
    assert site.copies() == []


@pytest.mark.parametrize(("need", "is_one"), [("libucs.so.0", True), ("libucs.so.0.0.0", False)])
def test_file_opened_by_its_path_serves_those_who_need_it(site: Site, need: str, *, is_one: bool) -> None:
    """As libucx, whose wheel has each library under three names: its package opens `libucs.so`."""
    file = site.library("libucx/lib/libucs.so", 1, soname="libucs.so.0")
    (file.parent / need).write_bytes(file.read_bytes())
    needed = site.library("opt/stub/libneed.so", 2, soname=need)
    module = site.module(f"ucxx{TAG}", [needed], rpath="$ORIGIN/libucx/lib")
    needed.unlink()
    script = "import ctypes, sys; [*map(ctypes.CDLL, sys.argv[1:])]; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", script, file, module], check=True, capture_output=True, text=True)
    assert len({line.split()[-1] for line in maps.stdout.splitlines() if "libucs" in line}) == 1 + (not is_one)
    assert len(site.copies()) == (not is_one)
