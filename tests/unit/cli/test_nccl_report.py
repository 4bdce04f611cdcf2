"""What `slipway inspect` says of NCCL's networks, on files as those of the EFA and the Megatron image."""

from __future__ import annotations

from cli.inspection import nccl_report
from containers.image.binaries import loading
from containers.image.binaries.elf_file import X86_64
from tests.helpers.elf_writer import elf
from tests.helpers.image_files import Files, image

LIB = "usr/lib/x86_64-linux-gnu"
NCCL: Files = {f"{LIB}/libnccl.so.2": elf("libnccl.so.2")}
VERBS: Files = {f"{LIB}/libibverbs.so.1": elf("libibverbs.so.1")}
OFI = "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"
EFA: Files = {
    **NCCL,
    **VERBS,
    OFI: elf("libnccl-net-ofi.so", ["libfabric.so.1", "libc.so.6", "libhwloc.so.15"]),
    "opt/amazon/efa/lib/libfabric.so.1.30.0": elf("libfabric.so.1"),
    "opt/amazon/efa/lib/libfabric.so.1": "->libfabric.so.1.30.0",
    f"{LIB}/libhwloc.so.15": elf("libhwloc.so.15"),
    "lib64/libc.so.6": elf("libc.so.6"),
}
OF_EFA = ("NCCL_NET_PLUGIN=ofi", f"LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/amazon/ofi-nccl/lib:/{LIB}")
HPCX = "opt/hpcx/nccl_rdma_sharp_plugin/lib"
MEGATRON: Files = {
    **NCCL,
    **VERBS,
    f"{HPCX}/libnccl-net.so.0.0.0": elf("libnccl-net.so.0", ["libucp.so.0", "libibverbs.so.1"]),
    f"{HPCX}/libnccl-net.so": "->libnccl-net.so.0.0.0",
    f"{HPCX}/libnccl-tuner.so": elf("libnccl-tuner.so"),
    "opt/hpcx/ucx/lib/libucp.so.0": elf("libucp.so.0"),
}
OF_MEGATRON = (f"LD_LIBRARY_PATH=/opt/hpcx/ucx/lib:/{HPCX}:/{LIB}",)


def rows(files: Files, *environment: str) -> list[tuple[str, str]]:
    plugins = loading.resolve(image(files, {"Env": list(environment)}), X86_64).plugins
    return list(nccl_report.rows(plugins))


def test_report_of_efa_names_its_plugin_and_libfabric() -> None:
    needs = f"libfabric.so.1 (/opt/amazon/efa/lib/libfabric.so.1.30.0), libhwloc.so.15 (/{LIB}/libhwloc.so.15)"
    own = f"InfiniBand by /{LIB}/libibverbs.so.1; else sockets"
    assert rows(EFA, *OF_EFA) == [("NCCL network", f"/{OFI}, needs {needs}; else {own}; for /{LIB}/libnccl.so.2")]


def test_report_of_efa_names_what_its_plugin_misses() -> None:
    without = {path: content for path, content in EFA.items() if "libfabric" not in path}
    ((_, value),) = rows(without, *OF_EFA)
    assert value.startswith(f"/{OFI}, which does not load, needs libfabric.so.1 (not found), libhwloc.so.15 (/{LIB}/")


def test_report_of_megatron_names_plugins_of_hpcx() -> None:
    needs = f"libucp.so.0 (/opt/hpcx/ucx/lib/libucp.so.0), libibverbs.so.1 (/{LIB}/libibverbs.so.1)"
    network, tuner = rows(MEGATRON, *OF_MEGATRON)
    own = f"InfiniBand by /{LIB}/libibverbs.so.1; else sockets; for /{LIB}/libnccl.so.2"
    assert network == ("NCCL network", f"/{HPCX}/libnccl-net.so.0.0.0, needs {needs}; else {own}")
    assert tuner == ("NCCL tuner", f"/{HPCX}/libnccl-tuner.so")


def test_report_of_nccl_without_plugin_names_its_own_networks() -> None:
    path = f"LD_LIBRARY_PATH=/{LIB}"
    verbs = f"InfiniBand by /{LIB}/libibverbs.so.1; else sockets; for /{LIB}/libnccl.so.2"
    assert rows({**NCCL, **VERBS}, path) == [("NCCL network", verbs)]
    sockets = "sockets: InfiniBand needs libibverbs.so.1; for /opt/nccl/libnccl.so.2, "
    two = {**NCCL, "opt/nccl/libnccl.so.2": elf("libnccl.so.2")}
    assert rows(two, path) == [("NCCL network", f"{sockets}/{LIB}/libnccl.so.2")]
    assert rows(VERBS) == []
