"""Libraries that others open by name, on written files; the names and folders are those of `plugins.toml`."""

from __future__ import annotations

import fnmatch
import io
import struct

from containers.image.binaries import elf_file, loading, plugin_table
from containers.image.binaries.elf_file import X86_64, Binary
from containers.image.binaries.loading import Loading
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults, image

CUDNN = ("", "_graph", "_ops", "_cnn", "_adv", "_engines_runtime_compiled", "_engines_precompiled", "_heuristic")
LIB = "usr/lib64"


def cudnn(folder: str, *without: str) -> Files:
    """Return cuDNN's libraries in a folder, but for some."""
    names = (f"libcudnn{part}.so.9" for part in CUDNN if part not in without)
    return {f"{folder}/{name}": elf(name, runpath="$ORIGIN") for name in names}


def read(content: bytes) -> Binary:
    return elf_file.read(io.BytesIO(content), len(content))


def resolved(files: Files, *environment: str) -> Loading:
    return loading.resolve(image(files, {"Env": list(environment)}), X86_64)


def nvrtc(version: str) -> bytes:
    """Return NVRTC, which holds the name of its builtins of one release."""
    name = f"libnvrtc-builtins.so.{version}"
    return elf("libnvrtc.so.13", rodata=f"\0cannot open {name}.\0{name}\0libnvrtc-builtins.so\0".encode())


def test_table_of_plugins_is_read() -> None:
    assert [
        row.library for row in plugin_table.openers() if plugin_table.opener(row.library.replace("*", "2")) != row
    ] == []


@every("name", ["libcudnn-74a4c495.so.9.1.0", "libcudnn-74a4c495.so.9", "libcudnn-0f3c2a91-1b2c3d4e.so.9.1.0"])
def test_copied_cudnn_misses_one_of_its_parts(name: str) -> None:
    """A wheel's repair renames the library, and not what it opens."""
    files = cudnn("opt/venv/lib", "", "_ops")
    files[f"opt/venv/lib/{name}"] = elf(name, runpath="$ORIGIN")
    expected = f"/opt/venv/lib/{name}: missing libcudnn_ops.so.9, which it opens: not in the image"
    assert expected in [line.partition(";")[0] for line in faults(files)]
    files["opt/venv/lib/libcudnn_ops.so.9"] = elf("libcudnn_ops.so.9")
    assert faults(files) == []


def test_copied_cudnn_without_any_part_is_for_another_package() -> None:
    """As in CTranslate2's wheel, which runs on processors alone."""
    name = "libcudnn-74a4c495.so.9.1.0"
    result = resolved({f"{SITE}/ctranslate2.libs/{name}": elf(name)})
    assert result.faults == []
    assert {plugin.name for plugin in result.plugins if not plugin.file} >= {"libcudnn_graph.so.9", "libcudnn_ops.so.9"}


def test_copied_nvrtc_misses_its_builtins() -> None:
    name = "libnvrtc-672ee683.so.11.2"
    files: Files = {f"{LIB}/{name}": elf(name, rodata=b"\0libnvrtc-builtins.so.11.2\0")}
    assert faults(files) == [f"/{LIB}/{name}: missing libnvrtc-builtins.so.11.2, which it opens: not in the image"]
    builtins = "libnvrtc-builtins-4425561a.so.11.2.152"
    files[f"{LIB}/{builtins}"] = elf(builtins)
    assert len(faults(files)) == 1, "it opens none of another name"
    files[f"{LIB}/core.so"] = elf(needed=[name, builtins])
    assert faults(files) == [], "its weak symbols are those of the builtins that its process has"


@every(
    "without, expected",
    [
        ((), []),
        (("_ops",), ["libcudnn.so.9: missing libcudnn_ops.so.9, which it opens: not in the image"]),
        (("_ops", "_cnn", "_adv", "_engines_precompiled", "_heuristic"), []),
        (
            ("_engines_runtime_compiled",),
            ["libcudnn_graph.so.9: missing libcudnn_engines_runtime_compiled.so.9, which it opens: not in the image"],
        ),
    ],
)
def test_cudnn_opens_all_its_parts_or_those_of_jit(without: tuple[str, ...], expected: list[str]) -> None:
    lines = faults(cudnn("opt/cudnn", *without))
    # In libcudnn's process its other parts are open too.
    assert [line.removeprefix("/opt/cudnn/").partition("; needed by")[0] for line in lines] == expected


def test_cudnn_8_opens_all_its_parts() -> None:
    parts = [f"_{part}_{use}" for part in ("ops", "cnn", "adv") for use in ("infer", "train")]
    whole: Files = {f"{LIB}/libcudnn{part}.so.8": elf(f"libcudnn{part}.so.8") for part in ("", *parts)}
    assert faults(whole) == []
    for part in parts:
        name = f"libcudnn{part}.so.8"
        without = {path: content for path, content in whole.items() if not path.endswith(name)}
        assert faults(without) == [f"/{LIB}/libcudnn.so.8: missing {name}, which it opens: not in the image"]
    assert faults({path: content for path, content in whole.items() if "_train" not in path}) == [], "it infers"


@every(
    "without, environment, expected",
    [
        ("", (), []),
        ("libmkl_avx2.so.3", (), []),
        ("libmkl_core.so.3", (), ["libmkl_core.so*"]),
        ("libmkl_intel_lp64.so.3", (), ["libmkl_intel_lp64.so*"]),
        ("libmkl_intel_lp64.so.3", ("MKL_INTERFACE_LAYER=ILP64",), []),
        ("libmkl_intel_thread.so.3", (), ["libmkl_intel_thread.so*"]),
        ("libmkl_intel_thread.so.3", ("MKL_THREADING_LAYER=SEQUENTIAL",), []),
        ("libmkl_[ad]*", (), ["libmkl_[adm]*.so*"]),
    ],
)
def test_mkl_opens_its_core_layers_and_kernels(without: str, environment: tuple[str, ...], expected: list[str]) -> None:
    """Also in a folder that nobody searches: it opens them by their paths, and the kernels find the core so."""
    parts = ("rt", "core", "def", "avx2", "intel_lp64", "intel_thread", "sequential")
    needed = {"def": ["libmkl_core.so.3"], "avx2": ["libmkl_core.so.3"]}
    names = [(part, f"libmkl_{part}.so.3") for part in parts]
    files: Files = {
        f"opt/mkl/{name}": elf(name, needed.get(part, []))
        for part, name in names
        if not fnmatch.fnmatchcase(name, without)
    }
    lines = [str(fault) for fault in resolved(files, *environment).faults]
    opened = [line for line in lines if line.startswith("/opt/mkl/libmkl_rt.so.3: ")]
    reason = "which it opens: it does not start without"
    assert opened == [f"/opt/mkl/libmkl_rt.so.3: missing {name}, {reason}" for name in expected]
    assert "libmkl_core.so.3" in without or lines == opened


@every(
    "environment, misses",
    [((), ["nvshmem_bootstrap_uid.so*"]), (("NVSHMEM_BOOTSTRAP=MPI",), [])],
)
def test_nvshmem_opens_a_bootstrap(environment: tuple[str, ...], misses: list[str]) -> None:
    folder = f"{SITE}/nvidia/nvshmem/lib"
    host: Files = {
        f"{folder}/libnvshmem_host.so.3": elf("libnvshmem_host.so.3", rpath="$ORIGIN"),
        f"{folder}/nvshmem_bootstrap_mpi.so.3": elf("nvshmem_bootstrap_mpi.so.3", ["libmpi.so.40"]),
    }
    lines = [str(fault) for fault in resolved(host, *environment).faults]
    reason = "which it opens: it does not start without"
    assert lines == [f"/{folder}/libnvshmem_host.so.3: missing {name}, {reason}" for name in misses]
    assert faults({**host, f"{folder}/nvshmem_bootstrap_uid.so.3": elf("nvshmem_bootstrap_uid.so.3")}) == []


def test_plugin_in_unsearched_folder_names_users() -> None:
    files: Files = {
        **cudnn(LIB, "_adv"),
        "opt/libcudnn_adv.so.9": elf("libcudnn_adv.so.9"),
        "bin/p": elf(needed=["libcudnn.so.9"], interpreter=LOADER),
    }
    reason = "/opt/libcudnn_adv.so.9 is in no folder that is searched; needed by /bin/p"
    assert faults(files) == [f"/usr/lib64/libcudnn.so.9: missing libcudnn_adv.so.9, which it opens: {reason}"]
    assert resolved(files, "LD_LIBRARY_PATH=/opt").faults == []


@every("release, opens", [("13.0", True), ("13.2", False)])
def test_nvrtc_opens_builtins_of_its_own_release(release: str, *, opens: bool) -> None:
    name = f"libnvrtc-builtins.so.{release}"
    lines = faults({f"{LIB}/libnvrtc.so.13": nvrtc("13.0"), f"{LIB}/{name}": elf(name)})
    missing = "missing libnvrtc-builtins.so.13.0, which it opens: not in the image"
    assert lines == ([] if opens else [f"/{LIB}/libnvrtc.so.13: {missing}"])


def test_nvrtc_with_sections_beyond_end_is_read() -> None:
    """The loader does without sections; the names in them are not known then."""
    content = nvrtc("13.0")
    assert read(content).holds == ("libnvrtc-builtins.so.13.0",)
    place = content.rindex(b".shstrtab\0") + len(b".shstrtab\0")
    start = content.index(struct.pack("<II", 1, 1), place) + 32  # the first section's size
    damaged = content[:start] + struct.pack("<Q", 1 << 40) + content[start + 8 :]
    assert (read(damaged).holds, read(damaged).problem) == ((), "")


def test_library_whose_names_lie_in_no_segment_is_a_fault() -> None:
    """The loader would read them from wherever that address is, and end."""
    content = elf("libx.so", needed=["liby.so"])
    end = len(content)
    start = content.index(struct.pack("<Q", 5), content.index(struct.pack("<QQ", 1, 1))) + 8  # DT_STRTAB's value
    for address in (end + 4096, 1 << 40):
        damaged = content[:start] + struct.pack("<Q", address) + content[start + 8 :]
        assert read(damaged).problem == f"malformed: address {address + 1:#x} is in no segment"


def test_plugin_of_python_environment_may_be_preloaded() -> None:
    folder, name = f"{SITE}/nvidia/cu13/lib", "libnvrtc-builtins.so.13.0"
    result = resolved({f"{folder}/libnvrtc.so.13": nvrtc("13.0"), f"{folder}/{name}": elf(name)})
    assert (result.faults, result.preloaded) == ([], {name: [f"/{folder}/libnvrtc.so.13"]})


def test_plugin_is_found_by_rpath_of_who_loads_opener() -> None:
    """torch's libraries have an RPATH, which NVRTC inherits, unlike a RUNPATH."""
    folder, name = "opt/cuda", "libnvrtc-builtins.so.13.0"
    files: Files = {f"{folder}/libnvrtc.so.13": nvrtc("13.0"), f"{folder}/{name}": elf(name)}
    assert faults(files) == [], "nobody opens a toolkit to which nothing leads"
    assert faults({**files, "opt/torch/libuser.so": elf(needed=["libnvrtc.so.13"], rpath="/opt/cuda")}) == []
    lines = faults({**files, "opt/torch/libuser.so": elf(needed=["libnvrtc.so.13"], runpath="/opt/cuda")})
    reason = "/opt/cuda/libnvrtc-builtins.so.13.0 is in no folder that is searched; needed by /opt/torch/libuser.so"
    assert lines == [f"/opt/cuda/libnvrtc.so.13: missing {name}, which it opens: {reason}"]


@every(
    "environment, expected",
    [
        ((), []),
        (("NCCL_NET_PLUGIN=none",), []),
        (("NCCL_NET_PLUGIN=ofi",), []),
        (("NCCL_NET_PLUGIN=libnccl-net-ofi.so",), []),
        (
            ("NCCL_NET_PLUGIN=spcx",),
            ["missing libnccl-net-spcx.so, which it opens: not in the image; NCCL_NET_PLUGIN of the image names it"],
        ),
    ],
)
def test_nccl_opens_plugin_that_environment_names(environment: tuple[str, ...], expected: list[str]) -> None:
    files: Files = {f"{LIB}/libnccl.so.2": elf("libnccl.so.2"), f"{LIB}/libnccl-net-ofi.so": elf("libnccl-net-ofi.so")}
    lines = [str(fault) for fault in resolved(files, *environment).faults]
    assert lines == [f"/{LIB}/libnccl.so.2: {line}" for line in expected]


@every(
    "settings, environment, expected",
    [
        ("# NCCL_NET_PLUGIN=gone\nNCCL_DEBUG=INFO\n", [], []),
        ("NCCL_DEBUG=INFO\nNCCL_TUNER_PLUGIN=gone", [], ["libnccl-tuner-gone.so"]),
        ("NCCL_NET_PLUGIN=gone\n", ["NCCL_NET_PLUGIN=none"], []),
    ],
)
def test_nccl_opens_plugin_that_its_settings_name(settings: str, environment: list[str], expected: list[str]) -> None:
    files: Files = {f"{LIB}/libnccl.so.2": elf("libnccl.so.2"), "etc/nccl.conf": settings}
    missing = [str(fault).partition(" missing ")[2].partition(",")[0] for fault in resolved(files, *environment).faults]
    assert missing == expected


@every("environment, elsewhere", [("A=1", "/opt/ofi/libnccl-net.so"), ("LD_LIBRARY_PATH=/opt/ofi", "")])
def test_nccl_plugin_that_is_not_searched_is_named(environment: str, elsewhere: str) -> None:
    files: Files = {
        f"{LIB}/libnccl.so.2": elf("libnccl.so.2"),
        "opt/ofi/libnccl-net-ofi.so": elf("libnccl-net-ofi.so"),
        "opt/ofi/libnccl-net.so": "->libnccl-net-ofi.so",
        "opt/text/libnccl-tuner.so": "INPUT(x)",
    }
    result = resolved(files, environment)
    assert result.faults == []
    assert {plugin.elsewhere for plugin in result.plugins} - {""} == {elsewhere} - {""}


def test_files_beside_opener_are_listed_and_load() -> None:
    """A transport's library is found by the RPATH of the program that opens UCX, and another one is broken."""
    files: Files = {
        "opt/ucx/lib/libucs.so.0.0.0": elf("libucs.so.0"),
        "opt/ucx/lib/libucs.so.0": "->libucs.so.0.0.0",
        "opt/ucx/lib/ucx/libuct_ib.so.0.0.0": elf("libuct_ib.so.0", ["libucs.so.0"]),
        "opt/ucx/lib/ucx/libuct_ib.so.0": "->libuct_ib.so.0.0.0",
        "opt/ucx/lib/ucx/libuct_gone.so.0": elf("libuct_gone.so.0", ["libgone.so"]),
        "opt/ucx/lib/ucx/other.so": elf("other.so"),
    }
    result = resolved(files)
    assert [str(fault) for fault in result.faults] == [
        "/opt/ucx/lib/ucx/libuct_gone.so.0: missing libgone.so: not in the image"
    ]
    assert [(plugin.file, plugin.loads) for plugin in result.plugins] == [
        ("/opt/ucx/lib/ucx/libuct_gone.so.0", False),
        ("/opt/ucx/lib/ucx/libuct_ib.so.0.0.0", True),
    ]


def test_ucc_without_memory_component_is_fault() -> None:
    files: Files = {f"{LIB}/libucc.so.1": elf("libucc.so.1"), f"{LIB}/ucc/libucc_cl_basic.so": elf()}
    assert faults(files) == [
        f"/{LIB}/libucc.so.1: missing ucc/libucc_mc_*.so, which it opens: it does not start without"
    ]
    assert faults({**files, f"{LIB}/ucc/libucc_mc_cpu.so": elf()}) == []
