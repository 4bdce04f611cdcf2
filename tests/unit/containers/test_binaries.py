"""What an image's ELF files need, on written files; tests/images/test_inspect.py has the real loader beside it."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from containers.errors import SlipwayError
from containers.image.binaries import contents, elf_file, loading
from containers.image.binaries.elf_file import X86_64, Binary
from containers.image.elf.dynamic import sysv_hash
from containers.image.gpu import driver, gpu_coverage
from containers.image.gpu.gpu_code import GpuCode
from containers.image.layers.layer import Entry, LayerIndex
from containers.image.owners import ownership
from stacks.versions import cuda_toolkit
from stacks.versions.archs import capability
from stacks.versions.cuda_toolkit import DRIVER_LABEL
from stacks.versions.incompatible import Incompatible
from tests.helpers.elf_writer import LOADER, elf, fatbin
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults, image


def read(content: bytes) -> Binary:
    return elf_file.read(io.BytesIO(content), len(content))


PROGRAM = elf(needed=["liba.so"], interpreter=LOADER, undefined=["a"])
LIBRARY = elf("liba.so", defined=["a"])


@every(
    "files, expected",
    [
        ({"usr/lib64/liba.so": LIBRARY}, []),
        ({}, ["/bin/p: missing liba.so: not in the image"]),
        ({"opt/liba.so": LIBRARY}, ["/bin/p: missing liba.so: /opt/liba.so is in no folder that is searched"]),
        ({"usr/lib64/liba.so": "->../../opt/liba.so", "opt/liba.so": LIBRARY}, []),
        ({"usr/lib64/liba.so": "->liba.so"}, ["/bin/p: missing liba.so: not in the image"]),
        ({"usr/lib64/liba.so": elf("liba.so", machine=183)}, ["/bin/p: missing liba.so: /usr/lib64/liba.so is for aarch64"]),
        ({"usr/lib64/liba.so": elf("liba.so")}, ["/bin/p: missing symbol a: no library defines it"]),
        (
            {"opt/liba.so": LIBRARY, "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf", "etc/ld.so.conf.d/x.conf": "/opt"},
            ["/bin/p: missing liba.so: /opt/liba.so is not in /etc/ld.so.cache; run ldconfig"],
        ),
        ({"usr/lib64/liba.so": "GROUP ( x )"}, ["/bin/p: missing liba.so: /lib64/liba.so is no ELF file"]),
        (
            {"usr/lib64/liba.so": LIBRARY[:64]},
            [
                "/usr/lib64/liba.so: cannot be loaded: malformed: a table at 64 ends after the file",
                "/bin/p: missing liba.so: /usr/lib64/liba.so cannot be loaded: malformed: a table at 64 ends after the file",
            ],
        ),
    ],
)  # fmt: skip
def test_resolve_program_reports_missing_library(files: dict[str, bytes | str], expected: list[str]) -> None:
    if expected == ["/bin/p: missing liba.so: /lib64/liba.so is no ELF file"]:
        files = {"lib64/liba.so": files["usr/lib64/liba.so"]}
    assert faults({"bin/p": PROGRAM, **files}) == expected


def test_library_of_another_machine_is_named_with_it() -> None:
    """By binutils' numbers (include/elf/common.h)."""
    machines = {3: "i386", 8: "mips", 20: "powerpc", 21: "powerpc64", 22: "s390x", 40: "arm", 183: "aarch64"}
    machines |= {224: "AMD GPU", 243: "riscv", 247: "bpf", 258: "loongarch", 50: "machine 50"}
    for number, name in machines.items():
        other = {"bin/p": PROGRAM, "usr/lib64/liba.so": elf("liba.so", machine=number)}
        assert faults(other) == [f"/bin/p: missing liba.so: /usr/lib64/liba.so is for {name}"]


def test_loader_that_is_none_is_missing() -> None:
    files: dict[str, bytes | str] = {"bin/p": PROGRAM, "usr/lib64/liba.so": LIBRARY}
    assert faults({**files, LOADER.lstrip("/"): "text"}) == [f"/bin/p: missing {LOADER}: no such loader"]
    malformed = f"{LOADER}: cannot be loaded: malformed: a table at 64 ends after the file"
    assert faults({**files, LOADER.lstrip("/"): LIBRARY[:64]}) == [malformed]


def test_resolve_library_of_environment_is_found() -> None:
    files: dict[str, bytes | str] = {"bin/p": PROGRAM, "opt/liba.so": LIBRARY}
    assert faults(files, {"Env": ["LD_LIBRARY_PATH=/nowhere:/opt"]}) == []


def test_resolve_needed_version_must_be_provided() -> None:
    user = elf("libu.so", ["liba.so"], needs={"liba.so": ["V1", "V2"]})
    versioned = elf("liba.so", provides=["liba.so", "V1"], defined=["a"])
    files: dict[str, bytes | str] = {"bin/p": PROGRAM, "lib64/libu.so": user, "lib64/liba.so": versioned}
    assert faults(files) == ["/lib64/libu.so: missing version V2 of /lib64/liba.so"]
    assert faults({**files, "lib64/liba.so": LIBRARY}) == [], "a library without versions satisfies all"
    hashes = [sysv_hash(name) for name in (b"GLIBC_2.2.5", b"GLIBC_ABI_DT_RELR")]
    assert hashes == [0x09691A75, 0x00FD0E42], "as `objdump -p` shows those of programs"


@every("needed", ["libc.so", "libc.musl-x86_64.so.1", "libc.so.7"])
def test_library_for_another_system_is_not_resolved(needed: str) -> None:
    """As packages of Node.js have: for musl and Android by the C library, for FreeBSD by the header."""
    path = "app/node_modules/a/watcher.node"
    assert faults({path: elf(needed=[needed], system=9 * (needed == "libc.so.7"))}) == []
    android = "app/node_modules/a/prebuilds/android-x64/a.node"
    assert faults({android: elf(needed=["liblog.so"])}) == []
    assert faults({android.replace("android", "linux"): elf(needed=["liblog.so"])}) != []


def test_plugin_for_daemons_is_no_fault() -> None:
    plugin = elf(undefined=["unlock_slurmctld"])
    assert faults({"usr/lib/x86_64-linux-gnu/slurm-wlm/sched_builtin.so": plugin}) == []
    assert len(faults({"usr/lib/sched_builtin.so": plugin})) == 1


def test_resolve_host_library_is_no_fault() -> None:
    program = elf(needed=["libcuda.so.1"], interpreter=LOADER, undefined=["cuInit"])
    result = loading.resolve(image({"bin/p": program}), X86_64)
    assert (result.faults, result.host) == ([], {"libcuda.so.1": ["/bin/p"]})


@every(
    "path, library, optional",
    [
        ("usr/local/lib/python3.12/lib-dynload/_tkinter.cpython-312-x86_64-linux-gnu.so", "libtk8.6.so", True),
        ("usr/local/lib/python3.12/lib-dynload/_tkinter.cpython-312-x86_64-linux-musl.so", "libtcl9tk9.0.so", True),
        ("usr/local/lib/python3.12/lib-dynload/_ssl.cpython-312-x86_64-linux-gnu.so", "libssl.so.3", False),
        ("opt/java/openjdk/lib/libawt_xawt.so", "libXtst.so.6", True),
        ("opt/java/openjdk/lib/amd64/libawt_xawt.so", "libXtst.so.6", True),
        ("opt/java/openjdk/lib/amd64/libjsoundalsa.so", "libasound.so.2", True),
        ("opt/java/openjdk/lib/libfontmanager.so", "libfreetype.so.6", False),
        ("usr/lib/jvm/java-21-openjdk-amd64/lib/libjava.so", "libjvm.so", True),
        ("usr/lib/collectd/java.so", "libjvm.so", False),
        ("usr/lib/x86_64-linux-gnu/pocl/libpocl-devices-pthread.so", "libpocl-devices-basic.so", True),
    ],
)
def test_what_official_images_lack_is_optional(path: str, library: str, *, optional: bool) -> None:
    assert (faults({path: elf(needed=(library,))}) == []) is optional


@every(
    "more, faulty",
    [
        ({}, True),
        ({"usr/lib64/libavutil.so.59": elf("libavutil.so.59")}, False),
        ({f"{SITE}/torchcodec/libtorchcodec_image.so": elf()}, False),
    ],
)
def test_one_of_some_plugins_must_load(more: Files, *, faulty: bool) -> None:
    cores: Files = {
        f"{SITE}/torchcodec/libtorchcodec_core{ffmpeg}.so": elf(needed=[f"libavutil.so.{library}"])
        for ffmpeg, library in ((7, 59), (8, 60))
    }
    expected = (
        f"/{SITE}/torchcodec/libtorchcodec_core8.so: missing libavutil.so.60: "
        "one of libtorchcodec_core7.so, libtorchcodec_core8.so must load"
    )
    assert faults({**cores, **more}) == ([expected] if faulty else [])


@every("file, faulty", [("", True), ("qt/plugins/platforms/libqxcb.so", False), ("cv2.abi3.so", True)])
def test_library_of_a_repair_is_for_what_needs_it(file: str, *, faulty: bool) -> None:
    """As of `opencv-python`, whose `cv2` is that of `opencv-python-headless` if this is installed later."""
    name = "libQt5Core-e6d3f451.so.5.15.13"
    files: Files = {f"{SITE}/opencv_python.libs/{name}": elf(name, ["libglib-2.0.so.0"])}
    if file:
        files[f"{SITE}/cv2/{file}"] = elf(needed=[name], runpath=f"/{SITE}/opencv_python.libs")
    assert [line.partition(":")[0] for line in faults(files)] == [f"/{SITE}/opencv_python.libs/{name}"] * faulty
    alone = {f"{SITE}/nixl.libs/ucx/{name}": elf(name, ["libglib-2.0.so.0"])}
    assert len(faults(alone)) == 1, "a plugin is opened by its path"


@every("size, there, faulty", [(4, True, True), (5, True, False), (4, False, False)])
def test_library_of_a_repair_may_be_for_what_is_gone(size: int, *, there: bool, faulty: bool) -> None:
    name = "libQt5Core-e6d3f451.so.5.15.13"
    record = f"opencv_python.libs/{name},sha256=YQ,\ncv2/cv2.abi3.so,sha256=YQ,{size}\ncv2/gone.py,sha256=YQ,1\n"
    files: Files = {
        f"{SITE}/opencv_python.libs/{name}": elf(name, ["libglib-2.0.so.0"]),
        f"{SITE}/opencv_python-4.dist-info/RECORD": record,
    }
    if there:
        files[f"{SITE}/cv2/cv2.abi3.so"] = "text"
    missing = [line for line in faults(files) if "libglib" in line]
    assert len(missing) == faulty


def test_resolve_python_library_may_be_preloaded() -> None:
    extension = elf(needed=["libx.so.1"])
    files: dict[str, bytes | str] = {f"{SITE}/a/_c.so": extension, f"{SITE}/nvidia/x/lib/libx.so.1": elf("libx.so.1")}
    result = loading.resolve(image(files), X86_64)
    assert (result.faults, result.preloaded) == ([], {"libx.so.1": [f"/{SITE}/a/_c.so"]})
    apart = {f"{SITE}/a/_c.so": extension, "usr/lib/python3/dist-packages/libx.so.1": elf("libx.so.1")}
    assert len(faults(apart)) == 1, "another environment's library is never opened"
    assert faults({"opt/plugin.so": extension, **files}) == [
        f"/opt/plugin.so: missing libx.so.1: /{SITE}/nvidia/x/lib/libx.so.1 is in no folder that is searched"
    ], "nothing opens it before a plugin outside Python's packages"


@every(
    "requires, needed, faulty",
    [
        ("", ["libgomp.so.1"], True),
        ("Requires-Dist: Tool_B>=1\n", ["libgomp.so.1"], False),
        ("Requires-Dist: torch; python_version < '3.12'\n", ["libgomp.so.1"], False),
        ("Requires-Dist: torch; sys_platform == 'win32'\n", ["libgomp.so.1"], True),
        ("Requires-Dist: torch; platform_machine != 'x86_64'\n", ["libgomp.so.1"], True),
        ("", ["libgomp.so.1", "libtorch.so"], False),
        ("", ["libtorch.so"], False),
    ],
)
def test_copy_of_a_system_library_is_for_its_package(requires: str, needed: list[str], *, faulty: bool) -> None:
    """As of torch, whose libgomp.so.1 LightGBM gets if torch is imported before it, and not else."""
    folders = {"lightgbm": "", "tool_a": "Requires-Dist: torch\n", "tool_b": "Requires-Dist: Tool-A\n", "torch": ""}
    files: Files = {
        f"{SITE}/{name}-1.dist-info/METADATA": f"Name: {name}\nVersion: 1\n{text}" for name, text in folders.items()
    }
    files[f"{SITE}/lightgbm-1.dist-info/METADATA"] = f"Name: lightgbm\nVersion: 1\n{requires}"
    files[f"{SITE}/lightgbm-1.dist-info/RECORD"] = "lightgbm/lib/lib_lightgbm.so,sha256=YQ,1\n"
    files[f"{SITE}/torch-1.dist-info/RECORD"] = (
        "torch/lib/libgomp.so.1,sha256=YQ,1\ntorch/lib/libtorch.so,sha256=YQ,1\n"
    )
    files |= {f"{SITE}/torch/lib/{name}": elf(name) for name in ("libgomp.so.1", "libtorch.so")}
    files[f"{SITE}/lightgbm/lib/lib_lightgbm.so"] = elf("lib_lightgbm.so", needed)
    other = "opt/other/lib/python3.11/site-packages/lightgbm-1.dist-info/METADATA"
    files[other] = "Name: lightgbm\nVersion: 1\nRequires-Dist: torch\n"
    assert [line.partition(": /")[0].rpartition("/")[2] for line in faults(files)] == (
        ["lib_lightgbm.so: missing libgomp.so.1"] if faulty else []
    )


def test_resolve_library_beside_python_may_be_preloaded() -> None:
    """As of MKL, whose wheel has libraries in the environment's `lib` and none among the packages."""
    needing = elf("libmkl_avx2.so.3", ["libmkl_core.so.3"])
    record = "../../../lib/liba.so,sha256=YQ,1\n../../../bin/p,sha256=YQ,1\n"
    files: Files = {"opt/venv/lib/liba.so": needing, f"{SITE}/mkl/libmkl_core.so.3": elf("libmkl_core.so.3")}
    assert len(faults(files)) == 1, "no wheel has installed it"
    files[f"{SITE}/mkl-1.dist-info/RECORD"] = record
    result = loading.resolve(image(files), X86_64)
    assert (result.faults, result.preloaded) == ([], {"libmkl_core.so.3": ["/opt/venv/lib/liba.so"]})
    files["opt/venv/bin/p"] = elf(needed=["libmkl_core.so.3"], interpreter=LOADER)
    assert len(faults(files)) == 1, "nothing opens a library before a program"


@every("python, count", [("python3.11", 0), ("python3.12", 1), ("other", 1)])
def test_resolve_extension_gets_the_library_of_its_python(python: str, count: int) -> None:
    """As in pyenv's `--enable-shared`: the RUNPATH of Python is not for what it opens, and a loaded soname serves."""
    name = "libpython3.11.so.1.0"
    files: Files = {
        f"opt/pyenv/bin/{python}": elf(needed=[name], interpreter=LOADER, runpath="$ORIGIN/../lib"),
        f"opt/pyenv/lib/{name}": elf(name),
        f"{SITE}/a/_c.so": elf(needed=[name]),
    }
    assert len(faults(files)) == count


def test_resolve_symbol_that_opener_defines_is_no_fault() -> None:
    program = elf(needed=["libdl.so"], interpreter=LOADER, defined=["callback"])
    plugin = elf("plugin.so", undefined=["callback"])
    assert faults({"bin/p": program, "opt/plugin.so": plugin, "lib64/libdl.so": elf("libdl.so")}) == []
    assert faults({"opt/plugin.so": plugin}) == ["/opt/plugin.so: missing symbol callback: no library defines it"]


def test_resolve_preloaded_library_provides_symbols() -> None:
    program = elf(needed=["libc.so"], interpreter=LOADER, undefined=["traced"])
    files: dict[str, bytes | str] = {
        "bin/p": program,
        "lib64/libc.so": elf("libc.so"),
        "opt/libpre.so": elf("libpre.so", defined=["traced"]),
    }
    assert faults(files) == ["/bin/p: missing symbol traced: no library defines it"]
    assert faults(files, {"Env": ["LD_PRELOAD=libgone.so:/opt/libpre.so"]}) == []
    assert faults({**files, "etc/ld.so.preload": "# libgone.so\n\t/opt/libpre.so # or\n"}) == []


def test_resolve_missing_preloaded_library_is_no_fault() -> None:
    files: dict[str, bytes | str] = {"bin/p": elf(interpreter=LOADER), "opt/libx.so": elf("libx.so"), "opt/text": "x"}
    names = ["/opt/gone.so", "libx.so", "/opt/text", "libcuda.so.1"]
    result = loading.resolve(image(files, {"Env": [f"LD_PRELOAD={' '.join(names)}"]}), X86_64)
    assert (result.faults, result.ignored) == (
        [],
        {
            "/opt/gone.so": "not in the image",
            "libx.so": "/opt/libx.so is in no folder that is searched",
            "/opt/text": "/opt/text is no ELF file",
        },
    )


def test_resolve_preloaded_library_must_itself_load() -> None:
    files: dict[str, bytes | str] = {
        "bin/p": elf(interpreter=LOADER),
        "lib64/libpre.so": elf("libpre.so", ["libgone.so"]),
    }
    assert faults(files, {"Env": ["LD_PRELOAD=libpre.so"]}) == [
        "/lib64/libpre.so: missing libgone.so: not in the image; needed by /bin/p, /lib64/ld-linux-x86-64.so.2"
    ]


def test_resolve_image_without_loader_names_interpreter() -> None:
    files = contents.of([LayerIndex({
        "p": Entry("file", 0o755, (0, 0), facts=read(PROGRAM)),
        "static": Entry("file", 0o755, (0, 0), facts=Binary(1, X86_64, "static")),
        "liba.so": Entry("file", 0o755, (0, 0), facts=read(LIBRARY)),
    })], {})  # fmt: skip
    result = loading.resolve(files, X86_64)
    assert [str(fault) for fault in result.faults] == [f"/p: missing {LOADER}: no such loader"]
    assert result.not_resolved == {"without a loader in the image": 1}


def test_resolve_musl_is_not_resolved() -> None:
    program = elf(needed=["libc.musl-x86_64.so.1"], interpreter="/lib/ld-musl-x86_64.so.1")
    assert loading.resolve(image({"bin/p": program}), X86_64).not_resolved == {"musl": 1}


def test_resolve_different_libraries_with_one_soname_are_listed() -> None:
    files: dict[str, bytes | str] = {
        "lib64/liba.so": LIBRARY,
        "opt/liba.so": elf("liba.so", defined=["b"]),
        "opt/same": LIBRARY,
    }
    assert loading.resolve(image(files), X86_64).sonames == {"liba.so": ["/lib64/liba.so", "/opt/liba.so"]}


def test_read_cut_file_has_problem() -> None:
    """The rest of a page after the end of a file is zeros in memory, which is no problem to the loader."""
    content = elf("liba.so", ["libb.so"], needs={"libb.so": ["V1"]}, provides=["V2"], defined=["a"], data=bytes(8192))
    assert not read(content).problem
    for length in range(4, 4097):
        assert read(content[:length]).problem, length


def test_read_changed_file_never_raises() -> None:
    content = elf(
        "liba.so", ["libb.so"], needs={"libb.so": ["V1"]}, provides=["V2"], defined=["a"], gpu=fatbin((2, 90, 0))
    )
    drawn = random.Random(7)
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(drawn.randrange(1, 9)):
            changed[drawn.randrange(4, len(content))] = drawn.choice((0, 1, 0x7F, 0xFF, drawn.randrange(256)))
        assert isinstance(read(bytes(changed)), Binary)


def test_read_large_file_without_room_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(elf_file, "_IN_MEMORY", 0)
    assert read(LIBRARY).soname == "liba.so"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(SlipwayError, match=r"gone: no room for a library of \d+ bytes: No such file .*; set TMPDIR"):
        read(LIBRARY)


def test_read_gpu_code_names_architectures() -> None:
    codes = (
        fatbin((2, 80, 0x8011), (2, 90, 0x108011)) + bytes(8) + fatbin((2, 100, 0x1200011), (1, 120, 0x41), (64, 75, 0))
    )
    assert [str(code) for code in read(elf("liba.so", gpu=codes)).gpu_code] == [
        "compute_120",
        "sm_80",
        "sm_90a",
        "sm_100f",
    ]


@every("cut", [1, 17, 60, 90])
def test_read_cut_fat_binary_ends(cut: int) -> None:
    assert read(elf("liba.so", gpu=fatbin((2, 80, 0), (2, 90, 0))[:-cut])).problem == ""


@every(
    "code, gpus",
    [
        (GpuCode("sm", 80), "A100 A40 L40S"),
        (GpuCode("sm", 90), "H100"),
        (GpuCode("sm", 100), "B200 B300"),
        (GpuCode("sm", 100, "a"), "B200"),
        (GpuCode("sm", 100, "f"), "B200 B300"),
        (GpuCode("ptx", 90), "H100 B200 B300"),
        (GpuCode("ptx", 90, "a"), "H100"),
    ],
)
def test_code_runs_on_gpus_of_its_kind(code: GpuCode, gpus: str) -> None:
    names = ("A100", "A40", "L40S", "H100", "B200", "B300")
    assert [name for name in names if gpu_coverage.runs(code, int(capability(name).replace(".", "")))] == gpus.split()


def test_cover_gpu_without_code_is_fault() -> None:
    library = elf("liba.so", gpu=fatbin((2, 90, 0x100000), (1, 80, 0)))
    covered = gpu_coverage.cover(
        image({"a.so": library, "b.so": elf("b", gpu=fatbin((2, 90, 1 << 20)))}), {"B200": "10.0", "9.0": "9.0"}
    )
    assert covered.compiled == {"B200 (10.0)": ["/a.so"]}
    assert [str(fault) for fault in covered.faults()] == ["/b.so: missing code for B200 (10.0): it has sm_90a"]


def test_capability_of_unknown_gpu_suggests_name() -> None:
    assert [capability(name) for name in ("h100", "9.0", "sm_103", "12.1")] == ["9.0", "9.0", "10.3", "12.1"]
    with pytest.raises(Incompatible, match=r"--gpu: 'H1000' is no known GPU.*did you mean 'H100'"):
        capability("H1000")


def record(*lines: str) -> str:
    return "\n".join([*lines, "x.dist-info/RECORD,,"])


SHA_A, SHA_B = ("sha256=" + letter * 43 for letter in "AB")


def test_driver_of_newest_cuda_is_least() -> None:
    files: dict[str, bytes | str] = {
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": elf("libcudart.so.13"),
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": elf("libcudart.so.12"),
        f"{SITE}/nvidia_cuda_runtime-13.2.51.dist-info/RECORD": record(),
        f"{SITE}/nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD": record(),
    }
    needed = driver.needed(image(files), cuda_toolkit)
    assert needed
    assert (needed.least, needed.cuda, needed.belongs) == ("580", "13.2", "595.45.04")
    assert [str(fault) for fault in needed.faults("570.86")] == [
        f"/{SITE}/nvidia/cu13/lib/libcudart.so.13: missing driver 580: 570.86 is too old for CUDA 13"
    ]
    assert needed.faults("580.65.06") == needed.faults("") == []
    labelled = driver.needed(image(files, {"Labels": {DRIVER_LABEL: "525.60.13"}}), cuda_toolkit)
    assert labelled
    assert [fault.reason for fault in labelled.faults("")] == [
        "the image's label slipway.driver is 525.60.13, too old for CUDA 13"
    ]
    right = driver.needed(image(files, {"Labels": {DRIVER_LABEL: "580"}}), cuda_toolkit)
    assert right
    assert right.faults("") == []
    assert driver.needed(image({}), cuda_toolkit) is None


def test_contested_library_names_owners_and_winner() -> None:
    path = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
    library = elf("libnccl.so.2")
    files: dict[str, bytes | str] = {
        path: library,
        f"{SITE}/nvidia_nccl_cu12-2.27.5.dist-info/RECORD": record(
            f"nvidia/nccl/lib/libnccl.so.2,{SHA_A},7", f"nvidia/x.txt,{SHA_A},1"
        ),
        f"{SITE}/nvidia_nccl_cu13-2.32.3.dist-info/RECORD": record(
            f"nvidia/nccl/lib/libnccl.so.2,{SHA_B},{len(library)}", f"nvidia/x.txt,{SHA_A},1", f"nvidia/gone,{SHA_B},1"
        ),
        f"{SITE}/nvidia/x.txt": "x",
    }
    assert [str(one.fault()) for one in ownership.contested(image(files))] == [
        f"/{path}: owned by nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.32.3 with different content: it has that of nvidia-nccl-cu13 2.32.3"
    ]


def test_contested_dpkg_file_must_be_in_both_lists() -> None:
    files: dict[str, bytes | str] = {
        "usr/lib64/liba.so": LIBRARY,
        "usr/bin/tool": "x",
        "var/lib/dpkg/info/a:amd64.md5sums": "0" * 32 + "  usr/lib64/liba.so\n" + "0" * 32 + "  usr/bin/tool\n",
        "var/lib/dpkg/info/a:amd64.list": "/.\n/usr/lib64/liba.so\n/usr/bin/tool\n",
        "var/lib/dpkg/info/b.md5sums": "1" * 32 + "  usr/lib64/liba.so\n" + "1" * 32 + "  usr/bin/tool\n",
        "var/lib/dpkg/info/b.list": "/.\n/usr/lib64/liba.so\n/usr/bin/tool\n",
        "var/lib/dpkg/diversions": "/usr/bin/tool\n/usr/bin/tool.distrib\nb\n",
    }
    assert [one.path for one in ownership.contested(image(files))] == ["/usr/lib64/liba.so"]
    replaced = {**files, "var/lib/dpkg/info/a:amd64.list": "/.\n/usr/bin/tool\n"}
    assert ownership.contested(image(replaced)) == []


@every("body", ["", "\0\xff", '"', "a,b", "a,sha256=!,x", "{}", '{"paths_data": 3}', '{"paths_data":{"paths":[{}]}}'])
def test_contested_malformed_record_is_empty(body: str) -> None:
    files: dict[str, bytes | str] = {f"{SITE}/a-1.dist-info/RECORD": body, "opt/conda/conda-meta/a-1-0.json": body}
    assert ownership.contested(image({**files, "var/lib/dpkg/info/a.md5sums": body})) == []
