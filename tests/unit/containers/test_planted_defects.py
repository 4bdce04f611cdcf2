"""The defects that images of this kind had, each planted: a page's table says what catches it first."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from containers.image.binaries import loading
from containers.image.binaries.elf_file import X86_64
from containers.image.gpu import gpu_coverage
from stacks import flavors
from stacks.config.stack_file import ROOT
from tests.helpers.elf_writer import LOADER, elf, fatbin
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults, image
from tests.helpers.refusals import refusal

CASES = ROOT / "docs/guides/inspection-cases.md"
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


@every(
    "files, expected",
    [
        (without(f"{HPCX}/libucc.so.1"), f"/{TORCH}: missing libucc.so.1: not in the image; NVIDIA's HPC-X has it"),
        (without(*UCC), f"/{TORCH}: missing libucc.so.1: not in the image; NVIDIA's HPC-X has it"),
        ({**SOUND, NCCL: nccl("12.9")}, f"/{NCCL}: missing CUDA 13: it is for CUDA 12.9, beside /usr/lib64/libcudart.so.13; needed by /{TORCH}"),
        (without("opt/amazon/efa/lib/libfabric.so.1"), f"/{PLUGIN}: missing libfabric.so.1: not in the image; Debian's libfabric1 has it"),
        ({**SOUND, "opt/amazon/efa/lib/libfabric.so.1": elf("libfabric.so.1", provides=["FABRIC_1.0"])}, f"/{PLUGIN}: missing version FABRIC_1.8 of /opt/amazon/efa/lib/libfabric.so.1"),
        (without(PLUGIN), f"/{NCCL}: missing libnccl-net-ofi.so, which it opens: not in the image; NCCL_NET_PLUGIN of the image names it; needed by /{TORCH}"),
        ({**SOUND, f"{SITE}/ext/_C.so": elf("_C.so", ["libtorch_cuda.so"], runpath="$ORIGIN/../torch/lib", undefined=["_ZN3c105older"])}, f"/{SITE}/ext/_C.so: missing symbol _ZN3c105older: it is built for another torch, and torch of /opt/venv does not define it"),
    ],
)  # fmt: skip
def test_planted_defect_of_loading_is_a_fault(files: Files, expected: str) -> None:
    assert faults(files, ENVIRONMENT) == [expected]


def test_nccl_without_a_runtime_beside_it_is_no_fault() -> None:
    program = elf(needed=["libnccl.so.2"], interpreter=LOADER)
    assert faults({"bin/all_reduce_perf": program, NCCL: nccl("12.9")}) == []


@every("cuda, count", [("13.3", 0), ("13.3rc1", 0), ("12.9", 1)])
def test_nccl_of_each_release_beside_cuda_13(cuda: str, count: int) -> None:
    assert len(faults({**SOUND, NCCL: nccl(cuda)}, ENVIRONMENT)) == count


def test_extension_without_a_wanted_architecture_is_a_fault() -> None:
    extension = elf("_C.so", gpu=fatbin((2, 80, 0), (2, 90, 0)))
    covered = gpu_coverage.cover(image({f"{SITE}/ext/_C.so": extension}), {"B200": "10.0"})
    expected = f"/{SITE}/ext/_C.so: missing code for B200 (10.0): it has sm_80 sm_90"
    assert [str(fault).replace(", ", " ") for fault in covered.faults()] == [expected]


def lacking(files: Files, compiled: dict[str, str]) -> list[str]:
    return [str(fault) for fault in gpu_coverage.lacking(image(files), compiled)]


def test_compiled_library_without_an_architecture_is_a_fault() -> None:
    sm80, record = elf("_C.so", gpu=fatbin((2, 80, 0))), "ext/_C.so,sha256=AAAA,7\n"
    files: Files = {
        f"{SITE}/ext/_C.so": sm80,
        f"{SITE}/my_ext-1.0.dist-info/RECORD": record,
        f"{SITE}/nvidia/cublas/lib/libcublas.so.13": sm80,
        "opt/nccl-tests/build/all_reduce_perf": elf("", gpu=fatbin((2, 80, 0), (1, 90, 0))),
    }
    extension = f"/{SITE}/ext/_C.so: missing code for 9.0: it has sm_80; my-ext is compiled for 8.0 9.0+PTX"
    assert lacking(files, {"my-ext": "8.0 9.0+PTX", "/opt/nccl-tests/*": "8.0 9.0 10.0"}) == [extension]
    program = "/opt/nccl-tests/build/all_reduce_perf: missing code for 7.5: it has compute_90, sm_80"
    assert lacking(files, {"/opt/nccl-tests/*": "7.5 8.6 9.0a"}) == [
        f"{program}; /opt/nccl-tests/* is compiled for 7.5 8.6 9.0a"
    ]
    assert lacking(files, {"my-ext": "8.0 8.6"}) == lacking(files, {"torch": "9.0"}) == lacking(files, {}) == []


def test_library_that_leaves_out_old_architectures_is_no_fault() -> None:
    files: Files = {
        f"{SITE}/deepspeed/ops/{name}.cpython-311-x86_64-linux-gnu.so": elf(name, gpu=fatbin((2, 80, 0)))
        for name in ("fp_quantizer/fp_quantizer_op", "adam/fused_adam_op")
    }
    records = "".join(f"{path.removeprefix(f'{SITE}/')},sha256=AAAA,7\n" for path in files)
    (fault,) = lacking({**files, f"{SITE}/deepspeed-0.19.7.dist-info/RECORD": records}, {"deepspeed": "7.5 8.0"})
    assert "fused_adam_op" in fault
    assert fault.endswith("missing code for 7.5: it has sm_80; deepspeed is compiled for 7.5 8.0")


@every(
    "flavor, keys, compiled",
    [
        ("local", {}, {}),
        ("universal", {"cuda": False}, {}),
        ("efa", {"archList": "9.0"}, {"/opt/nccl-tests/*": "9.0"}),
        ("efa", {"archList": "9.0", "nccl": {"tests": False}, "extras": {"xformers": "0.0.35"}}, {"xformers": "9.0"}),
        (
            "base",
            {"archList": "7.5 9.0+PTX", "extras": {"deepspeed": False, "apex": False}},
            {"torch": "7.5 9.0+PTX", "torchvision": "7.5 9.0+PTX", "torchaudio": "7.5 9.0+PTX", "flash-attn": "9.0"},
        ),
    ],
)
def test_stack_says_what_it_compiles_for_which_gpus(flavor: str, keys: dict[str, object], compiled: object) -> None:
    *_, last = flavors.flavor(flavor).images(flavors.load({"flavor": flavor, **keys}, "stack x"))
    assert last.compiled == compiled


@every(
    "flavor, keys, message",
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


def test_torchcodec_for_other_ffmpegs_is_no_fault() -> None:
    files: Files = {
        f"{SITE}/torchcodec/libtorchcodec_core4.so": elf("c", ["libavcodec.so.58", "libswscale.so.5"]),
        f"{SITE}/torchcodec/libtorchcodec_core5.so": elf("c", ["libavcodec.so.59"]),
        f"{SITE}/torchcodec/libtorchcodec_heic.so": elf("h", ["libheif.so.1"]),
        "usr/lib64/libavcodec.so.59": elf("libavcodec.so.59"),
    }
    result = loading.resolve(image(files), X86_64)
    assert (result.faults, list(result.optional)) == ([], ["libavcodec.so.58", "libswscale.so.5", "libheif.so.1"])


def test_dlpack_addons_for_other_torches_are_no_fault() -> None:
    """Also where none is for the torch that is there: from 2.10 on it needs none of them."""
    files: Files = {
        f"{SITE}/torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{release}-{device}.so": elf(
            "a", ["libtorch.so"], undefined=["_ZN3c106detailE"]
        )
        for release in ("28", "29")
        for device in ("cpu", "cuda")
    }
    files |= {f"{SITE}/torch/lib/libtorch.so": elf("libtorch.so", defined=["_ZN3c104implE"])}
    assert loading.resolve(image(files), X86_64).faults == []


def test_expert_parallel_kernels_of_nixl_are_for_cudas_torch() -> None:
    module = elf(needed=["libtorch_cuda.so", "libcudart.so.13"])
    result = loading.resolve(image({f"{SITE}/nixl_ep/nixl_ep_cpp.cpython-311-x86_64-linux-gnu.so": module}), X86_64)
    assert (result.faults, list(result.optional)) == ([], ["libtorch_cuda.so", "libcudart.so.13"])


@every("library, optional", [("libdoca_common-d1bdeaea.so.3", True), ("libucs-14c218c5.so.0", False)])
def test_version_that_a_part_of_an_optional_plugin_misses(library: str, *, optional: bool) -> None:
    """DOCA's libraries, for NIXL's plugin GPUNETIO alone."""
    folder = f"{SITE}/nixl_cu13.libs"
    files: Files = {
        f"{folder}/{library}": elf(
            library, ["libmlx5-79ef1d27.so.1"], needs={"libmlx5-79ef1d27.so.1": ["MLX5_1.25"]}, rpath="$ORIGIN"
        ),
        f"{folder}/libmlx5-79ef1d27.so.1": elf("libmlx5-79ef1d27.so.1", provides=["MLX5_1.24"]),
    }
    result = loading.resolve(image(files), X86_64)
    assert [fault.kind for fault in result.faults] == ["version"] * (not optional)
    assert list(result.optional) == ["libmlx5-79ef1d27.so.1"] * optional


def named_tests() -> Iterator[str]:
    yield from re.findall(r"`([\w/]+\.py::\w+)`", CASES.read_text(encoding="utf-8"))


def test_tables_of_defects_name_tests_that_exist() -> None:
    named = set(named_tests())
    assert len(named) >= 30
    for file, _, function in (name.partition("::") for name in named):
        assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, function)


def test_plugin_of_qt_outside_its_wheels_is_a_fault() -> None:
    files: Files = {
        f"{SITE}/PyQt5/Qt5/plugins/texttospeech/libspeech.so": elf("s", ["libspeechd.so.2"]),
        f"{SITE}/PySide6/Qt/plugins/platforms/libqxcb.so": elf("x", ["libxcb-cursor.so.0"]),
        "opt/QtViewer/app/plugins/gpu.so": elf("g", ["libviewer.so.1"]),
    }
    result = loading.resolve(image(files), X86_64)
    assert sorted(fault.missing for fault in result.faults) == ["missing libviewer.so.1", "missing libxcb-cursor.so.0"]
    assert list(result.optional) == ["libspeechd.so.2"]


def test_mpi4py_compiled_without_its_mpi_is_a_fault() -> None:
    suffix = "cpython-311-x86_64-linux-gnu.so"
    files: Files = {
        f"{SITE}/mpi4py/MPI.{suffix}": elf("m", ["libmpi.so.40"]),
        f"{SITE}/mpi4py/MPI.mpich.{suffix}": elf("m", ["libmpi.so.12"]),
    }
    result = loading.resolve(image(files), X86_64)
    assert ([fault.missing for fault in result.faults], list(result.optional)) == (
        ["missing libmpi.so.40"],
        ["libmpi.so.12"],
    )


@every(
    "plugin, needed",
    [
        ("OpenMM.libs/lib/plugins/libOpenMMRPMDOpenCL.so", "libOpenCL.so.1"),
        ("onnxruntime/capi/libopenvino_intel_gpu_plugin.so", "libOpenCL.so.1"),
        ("ctransformers/lib/cuda/libctransformers.so", "libcublas.so.12"),
        ("gpt4all/llmodel_DO_NOT_MODIFY/build/libllamamodel-mainline-cuda-avxonly.so", "libcudart.so.11.0"),
        ("../../libtbbbind_2_5.so.3.20", "libhwloc.so.15"),
        ("../../libarcher.so", "libimf.so"),
        ("../../libur_loader.so.0.12.0", "libsvml.so"),
        ("nvidia/cu12/lib/libcudss_commlayer_openmpi.so.1", "libmpi.so.40"),
        ("nvidia/cu13/lib/libcudss_mtlayer_gomp.so.1", "libgomp.so.1"),
        ("mooncake/pg_2_11_0.cpython-311-x86_64-linux-gnu.so", "libtorch.so"),
        (
            "azure/cognitiveservices/speech/libMicrosoft.CognitiveServices.Speech.extension.codec.so",
            "libgstreamer-1.0.so.0",
        ),
        ("casadi/libcasadi_nlpsol_knitro.so.3.7", "libknitro.so"),
        ("xpresslibs/lib/libxprscuda.so", "libcublas.so.13"),
        ("tensorflow_io/python/ops/libtensorflow_io_ffmpeg_4.2.so", "libavformat.so.58"),
        ("pygame/scrap.cpython-311-x86_64-linux-gnu.so", "libX11.so.6"),
        ("kivy/core/window/window_x11.cpython-311-x86_64-linux-gnu.so", "libXrender.so.1"),
        ("kivy/graphics/cgl_backend/cgl_glew.cpython-311-x86_64-linux-gnu.so", "libGL.so.1"),
    ],
)
def test_plugin_that_its_owner_does_without_is_no_fault(plugin: str, needed: str) -> None:
    """It is one for what it is for: another library that it misses is a fault."""
    path = posixpath.normpath(f"{SITE}/{plugin}")
    result = loading.resolve(image({path: elf("p", [needed, "libother.so"])}), X86_64)
    assert ([fault.missing for fault in result.faults], list(result.optional)) == (["missing libother.so"], [needed])


def test_plugin_that_may_lack_everything_may_lack_symbols() -> None:
    """As those of LiteRT for the processors of vendors."""
    folder = f"{SITE}/ai_edge_litert"
    name = "libLiteRtCompilerPlugin_Samsung.so"
    files: Files = {f"{folder}/vendors/samsung/compiler/{name}": elf(name, ["libc.so.6"], undefined=["instance"])}
    assert faults(files) == []
    files = {f"{folder}/{name}": elf(name, ["libc.so.6"], undefined=["instance"])}
    assert len(faults(files)) == 1


def test_mooncake_for_another_torch_is_no_fault() -> None:
    files: Files = {
        f"{SITE}/mooncake/pg_2_11_0.cpython-311-x86_64-linux-gnu.so": elf(
            "p", ["libtorch.so"], undefined=["_ZN3c106detailE"]
        ),
        f"{SITE}/torch/lib/libtorch.so": elf("libtorch.so", defined=["_ZN3c104implE"]),
    }
    assert faults(files) == []


def test_plugins_that_nixl_passes_over_are_no_fault() -> None:
    folder = f"{SITE}/nixl_cu12.libs"
    files: Files = {
        f"{folder}/nixl/libplugin_GDS.so": elf("g", ["libcufile.so.0"]),
        f"{folder}/nixl/libtelemetry_exporter_doca.so": elf("t", ["libdoca_telemetry_exporter.so.2"]),
        f"{folder}/ucx/libuct_ib_efa.so.0.0.0": elf("e", ["libefa.so.1"]),
        f"{SITE}/nixl_ep_cu12/nixl_ep_cpp_torch211.cpython-311-x86_64-linux-gnu.so": elf("x", ["libtorch.so"]),
    }
    assert faults(files) == []
    built = "opt/nvidia/nvda_nixl/lib/x86_64-linux-gnu/plugins"  # where NIXL and Dynamo have it that they compile
    files |= {f"{built}/libplugin_{name}.so": elf("p", ["libgone.so.1"]) for name in ("OBJ", "UCX_MO")}
    assert faults(files) == []
    plugin: Files = {f"{folder}/nixl/libplugin_UCX.so": elf("u", ["libucp-b39b3ed9.so.0.0.0"])}
    assert len(faults({**files, **plugin})) == 1, "without UCX nothing is left"
