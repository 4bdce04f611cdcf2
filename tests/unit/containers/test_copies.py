"""Copies of one library in one process: real libraries, and what the real loader makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from containers.image.binaries import loading
from containers.image.binaries.elf_file import X86_64
from containers.image.copies.families import plain, table
from containers.image.copies.library_copies import Copies, copies
from containers.image.layers.layer import LayerIndex
from containers.image.owners import contradictions
from containers.image.owners.ownership import contested
from containers.image.owners.ownership_records import Owner
from tests.helpers import folder_image, image_files
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every

SITE = "opt/venv/lib/python3.11/site-packages"
TAG = ".cpython-311-x86_64-linux-gnu.so"
_OPEN = """
import ctypes, json, sys
found = []
for path, everywhere in json.loads(sys.argv[1]):
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if everywhere else ctypes.RTLD_LOCAL)
    found.append(library.asks() if hasattr(library, "asks") else None)
print(json.dumps(found))
"""


class Site:
    """A folder of packages, whose libraries are compiled; their function ``which`` says which of them it is of."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / SITE

    def library(self, path: str, number: int, *, soname: str = "", version: str = "") -> Path:
        """Compile a library whose `which` returns a number, under a symbol version if one is given."""
        options = [f"-Wl,-soname,{soname or path.rpartition('/')[2]}"]
        if version:
            script = self.root / f"{version}.map"
            script.write_text(f"{version} {{ global: which; local: *; }};\n", encoding="utf-8")
            options.append(f"-Wl,--version-script={script}")
        return self._compile(
            path, f"const char of[{number}0000] = {{1}}; int which(void) {{ return {number}; }}", options
        )

    def module(self, path: str, needs: Iterable[Path], *, runpath: str = "", rpath: str = "") -> Path:
        """Compile a module whose `asks` returns what the `which` of its libraries does."""
        options = ["-Wl,--no-as-needed", *map(str, needs)]
        options += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"] if rpath else []
        options += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"] if runpath else []
        return self._compile(path, "int which(void); int asks(void) { return which(); }", options)

    def _compile(self, path: str, source: str, options: Iterable[str]) -> Path:
        file = self.root / path if path.startswith("opt/") else self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", str(file), "-nostdlib", *options]
        subprocess.run(command, input=source, text=True, check=True)
        return file

    def asked(self, *opened: Path, environment: Mapping[str, str] | None = None) -> list[int | None]:
        """Open modules in one process, in this order, by the real loader, and return what each one's library says."""
        jobs = [(str(file), "global_deps" in file.name) for file in opened]
        command = [sys.executable, "-c", _OPEN, json.dumps(jobs)]
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(environment or {}))
        return list(json.loads(result.stdout))

    def copies(self, *environment: str) -> list[Copies]:
        """Return the copies that the image of these packages has."""
        index = folder_image.index(self.root / "opt", "opt")
        base = {path: entry for path, entry in image_files.image({}).tree.paths() if entry}
        contents = folder_image.image([LayerIndex(base), index], dict(pair.split("=", 1) for pair in environment))
        return copies(contents, loading.resolve(contents, X86_64).processes)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@every(
    "name, expected",
    [
        ("libgomp-a34b3233.so.1", "libgomp.so.1"),
        ("libgfortran-040039e1-0352e75f.so.5.0.0", "libgfortran.so.5.0.0"),
        ("libucs-14c218c5.so.0.0.0", "libucs.so.0.0.0"),
        ("libscipy_openblas64_-32a4b2a6.so", "libscipy_openblas64_.so"),
        ("libprotobuf-lite.so.32", "libprotobuf-lite.so.32"),
    ],
)
def test_plain_name_has_nothing_of_a_repair(name: str, expected: str) -> None:
    assert plain(name) == expected


def test_table_names_families_and_sources() -> None:
    names = {family.name for family in table().families}
    assert {case.family for case in table().cases} <= names
    assert all(case.source.startswith("github.com/") for case in table().cases)


@every("version", ["9" * 4400, "banana", ""])
def test_case_is_of_no_release_that_cannot_be_read(version: str) -> None:
    of_releases = [one for one in table().cases if one.releases]
    assert of_releases
    assert not any(case.is_of(Owner("pip", "nixl", version), None) for case in of_releases)


def test_library_path_to_modules_of_another_ucx_is_a_fault() -> None:
    """From nixl 1.4 on its modules need each other by names of files, which LD_LIBRARY_PATH finds before their own."""
    one, other = f"{SITE}/nixl_cu13.libs", "opt/hpcx/ucx/lib"
    own = "libucs-14c218c5.so.0.0.0"
    files: image_files.Files = {
        f"{SITE}/.nixl_cu13.mesonpy.libs/plugins/libplugin_UCX.so": elf(
            needed=[own], rpath="$ORIGIN/../../nixl_cu13.libs"
        ),
        f"{one}/{own}": elf(own, defined=["ucs_init"]),
        f"{one}/ucx/libuct_cuda.so.0.0.0": elf("libuct_cuda.so.0", [own], runpath="$ORIGIN/.."),
        f"{one}/ucx/libuct_ib_mlx5_gda.so.0.0.0": elf(
            "libuct_ib_mlx5_gda.so.0", ["libuct_cuda.so.0.0.0", own], runpath="$ORIGIN/..:$ORIGIN"
        ),
        f"{other}/libucs.so.0": elf("libucs.so.0", defined=["ucs_init"]),
        f"{other}/ucx/libuct_cuda.so.0.0.0": elf("libuct_cuda.so.0", ["libucs.so.0"], runpath="$ORIGIN/.."),
    }

    def faults(path: str) -> list[str]:
        contents = image_files.image(files, {"Env": [f"LD_LIBRARY_PATH={path}"]})
        every = copies(contents, loading.resolve(contents, X86_64).processes)
        return [str(one.fault()) for one in every if one.how == "mixed"]

    assert faults("/opt/hpcx/ucx/lib") == []
    [line] = faults("/opt/hpcx/ucx/lib/ucx:/opt/hpcx/ucx/lib")
    assert "github.com/coreweave/ml-containers/pull/173" in line


def test_two_runtimes_of_llvm_are_a_fault_unless_allowed() -> None:
    files: image_files.Files = {
        "usr/lib64/libiomp5.so": elf("libiomp5.so", defined=["omp_get_max_threads"]),
        "usr/lib64/libomp.so.5": elf("libomp.so.5", defined=["omp_get_max_threads"]),
        "bin/p": elf(needed=["libiomp5.so", "libomp.so.5"], interpreter=LOADER),
    }

    def faults(config: Mapping[str, list[str]]) -> list[str]:
        contents = image_files.image(files, config)
        every = copies(contents, loading.resolve(contents, X86_64).processes)
        assert len(every) == 1
        return [str(one.fault()) for one in every if one.case]

    [line] = faults({})
    assert line.startswith("/usr/lib64/libiomp5.so: is beside /usr/lib64/libomp.so.5")
    assert "OMP: Error #15" in line
    assert faults({"Env": ["KMP_DUPLICATE_LIB_OK=TRUE"]}) == []


def test_environments_are_processes_of_their_own() -> None:
    module = elf(needed=["libgomp-11111111.so.1"], rpath="$ORIGIN")
    other = elf(needed=["libgomp-22222222.so.1"], rpath="$ORIGIN")
    files: image_files.Files = {
        f"{SITE}/a{TAG}": module,
        f"{SITE}/libgomp-11111111.so.1": elf("libgomp-11111111.so.1", defined=["omp_init"]),
        f"opt/other/lib/python3.11/site-packages/b{TAG}": other,
        "opt/other/lib/python3.11/site-packages/libgomp-22222222.so.1": elf(
            "libgomp-22222222.so.1", defined=["omp_init"]
        ),
    }
    contents = image_files.image(files)
    assert copies(contents, loading.resolve(contents, X86_64).processes) == []


BASE, TARGET = "usr/local/lib/python3.11/site-packages", "opt/target"
VENV: image_files.Files = {"opt/venv/pyvenv.cfg": "home = /usr/local/bin\ninclude-system-site-packages = true\n"}
USER = "root/.local/lib/python3.11/site-packages"


@every(
    "files, one, other, process",
    [
        (VENV, SITE, BASE, "/opt/venv"),
        ({"opt/venv/pyvenv.cfg": "home = /usr/local/bin\ninclude-system-site-packages = false\n"}, SITE, BASE, ""),
        ({}, USER, BASE, "/usr/local"),
        (VENV, SITE, USER, "/opt/venv"),
        ({}, TARGET, BASE, "/usr/local"),
        ({}, TARGET, SITE, "/opt/venv"),
        ({}, "opt/other", BASE, ""),
        ({}, "usr/local/lib/python3.11/dist-packages", "usr/lib/python3/dist-packages", "/usr"),
        (
            {"usr/local/bin/python3.11": ""},  # Red Hat
            "usr/local/lib64/python3.11/site-packages",
            "usr/lib/python3.11/site-packages",
            "/usr",
        ),
        ({}, "usr/local/lib64/python3.11/site-packages", "usr/lib/python3.11/site-packages", ""),
    ],
)
def test_folders_that_one_python_searches_are_one_process(
    files: image_files.Files, one: str, other: str, process: str
) -> None:
    images = {f"{SITE}/own.py": "", "usr/bin/python3.11": elf(), "usr/local/bin/python3.11": elf(), **files}
    for number, folder in enumerate((one, other), 1):
        library = f"libgomp-{number * 11111111}.so.1"
        images[f"{folder}/p{number}/m{TAG}"] = elf(needed=[library], rpath="$ORIGIN")
        images[f"{folder}/p{number}/{library}"] = elf(library, defined=[f"omp_{number}"])
    contents = image_files.image(images, {"Env": [f"PYTHONPATH=/{TARGET}"]})
    found = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [each.process for each in found] == [f"the Python of {process}"] * bool(process)


def test_package_that_an_earlier_folder_hides_is_in_no_process() -> None:
    files: image_files.Files = {**VENV, "usr/local/bin/python3.11": elf()}
    for number, folder in enumerate((SITE, BASE), 1):
        library = f"libgomp-{number * 11111111}.so.1"
        files |= {f"{folder}/p/__init__.py": "", f"{folder}/p/m{TAG}": elf(needed=[library], rpath="$ORIGIN")}
        files[f"{folder}/p/{library}"] = elf(library, defined=[f"omp_{number}"])
    contents = image_files.image(files)
    assert copies(contents, loading.resolve(contents, X86_64).processes) == []


@every(
    "file, how",
    [
        ("lightgbm/lib/lib_lightgbm.so", "both"),
        ("dgl/libdgl.so", "both"),
        ("decord/libdecord.so", "mixed"),
        ("tvm_ffi/lib/libtvm_ffi.so", "mixed"),
        ("transformer_engine/libtransformer_engine.so", "mixed"),
        ("tensorrt_llm/libs/libth_common.so", "both"),
        ("tensorrt_llm/libs/libtensorrt_llm_nixl_wrapper.so", "both"),
        ("torchvision/image_stable.so", "both"),
        ("onnxruntime/capi/libonnxruntime_providers_cuda.so", "both"),
        ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "both"),
        ("other/lib/libother.so", ""),
    ],
)
def test_file_that_a_package_opens_is_in_its_process(file: str, how: str) -> None:
    folder = file.rpartition("/")[0]
    files: image_files.Files = {
        f"{SITE}/a/m{TAG}": elf(needed=["libgomp-11111111.so.1"], rpath="$ORIGIN"),
        f"{SITE}/a/libgomp-11111111.so.1": elf("libgomp-11111111.so.1", defined=["omp_init"]),
        f"{SITE}/{file}": elf(file.rpartition("/")[2], needed=["libgomp-22222222.so.1"], rpath="$ORIGIN"),
        f"{SITE}/{folder}/libgomp-22222222.so.1": elf("libgomp-22222222.so.1", defined=["omp_init", "omp_end"]),
    }
    contents = image_files.image(files)
    found = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [one.how for one in found] == [how] * bool(how)


@every("is_there", [True, False])
def test_nccl_that_jax_opens_counts_where_jax_is(*, is_there: bool) -> None:
    files: image_files.Files = {
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2", defined=["ncclInit"]),
        "usr/lib64/libnccl.so.2": elf("libnccl.so.2", defined=["ncclInit", "ncclFini"]),
        **({f"{SITE}/jax_plugins/xla_cuda13/__init__.py": ""} if is_there else {}),
    }
    contents = image_files.image(files)
    found = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [(one.family, one.how) for one in found] == [("NCCL", "name")] * is_there


def test_copy_that_two_files_of_a_process_miss_is_no_two() -> None:
    """As in the wheel of faiss for GPUs, whose module and library both leave the runtime to a package."""
    files: image_files.Files = {
        f"{SITE}/faiss/m{TAG}": elf(needed=["libcudart.so.12", "libfaiss.so"], rpath="$ORIGIN"),
        f"{SITE}/faiss/libfaiss.so": elf("libfaiss.so", needed=["libcudart.so.12"]),
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": elf("libcudart.so.12", defined=["cudaMalloc"]),
        f"{SITE}/a/m{TAG}": elf(needed=["libcudart.so.13"], rpath="$ORIGIN/../nvidia/cu13/lib"),
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": elf("libcudart.so.13", defined=["cudaMalloc"]),
    }
    contents = image_files.image(files)
    [found] = copies(contents, loading.resolve(contents, X86_64).processes)
    assert (found.family, found.how) == ("CUDA runtime", "both")


def test_equal_runtime_under_a_name_of_its_own_is_a_second_copy() -> None:
    """As in torchvision's wheel: the need is `libcudart.3eda8113.so.13`, and the soname of that file is still `libcudart.so.13`."""
    runtime = elf("libcudart.so.13", defined=["cudaMalloc"])
    files: image_files.Files = {
        f"{SITE}/torch/_C{TAG}": elf(needed=["libcudart.so.13"], rpath="$ORIGIN/../nvidia/cu13/lib"),
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": runtime,
        f"{SITE}/torchvision/image_stable.so": elf(
            needed=["libcudart.3eda8113.so.13"], rpath="$ORIGIN/../torchvision.libs"
        ),
        f"{SITE}/torchvision.libs/libcudart.3eda8113.so.13": runtime,
    }
    contents = image_files.image(files)
    [found] = copies(contents, loading.resolve(contents, X86_64).processes)
    assert (found.family, found.case, [copy.by for copy in found.copies]) == (
        "CUDA runtime",
        None,
        [(f"/{SITE}/torch/_C{TAG}",), (f"/{SITE}/torchvision/image_stable.so",)],
    )


@every(
    "opener, found",
    [("sgl_kernel/load_utils.py", True), ("other/load_utils.py", False)],
)
def test_systems_runtime_that_a_package_opens_is_in_its_process(opener: str, *, found: bool) -> None:
    """Equal files are two copies, since a path is no name that the first one could serve."""
    runtime = elf("libcudart.so.13", defined=["cudaMalloc"])
    files: image_files.Files = {
        f"{SITE}/{opener}": "",
        f"{SITE}/torch/_C{TAG}": elf(needed=["libcudart.so.13"], rpath="$ORIGIN/../nvidia/cu13/lib"),
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": runtime,
        "usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13.0.48": runtime,
    }
    contents = image_files.image(files)
    every_one = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [one.how for one in every_one] == ["mixed"] * found


@every(
    "opener, found",
    [
        ("torch/lib/libtorch_global_deps.so", True),
        ("tensorflow/libtensorflow_framework.so.2", True),
        ("other/lib/libother.so", False),
    ],
)
def test_runtime_of_another_cuda_beside_its_opener_is_named(opener: str, *, found: bool) -> None:
    files: image_files.Files = {
        f"{SITE}/{opener}": elf(opener.rpartition("/")[2]),
        f"{SITE}/a/m{TAG}": elf(needed=["libcudart.so.13"], rpath="$ORIGIN/../nvidia/cu13/lib"),
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": elf("libcudart.so.13", defined=["cudaMalloc"]),
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": elf("libcudart.so.12", defined=["cudaMalloc"]),
    }
    contents = image_files.image(files)
    every_one = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [(one.family, one.how, one.case) for one in every_one] == [("CUDA runtime", "both", None)] * found


@every("variable", ["VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH"])
def test_nccl_that_a_variable_names_is_loaded_too(variable: str) -> None:
    files: image_files.Files = {
        f"{SITE}/torch/_C{TAG}": elf(needed=["libnccl.so.2"], rpath="$ORIGIN/../nvidia/nccl/lib"),
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2", defined=["ncclInit"]),
        "opt/nccl/lib/libnccl.so.2.28.3": elf("libnccl.so.2", defined=["ncclInit", "ncclFini"]),
    }

    def found(path: str) -> list[tuple[str, list[str]]]:
        contents = image_files.image(files, {"Env": [f"{variable}={path}"]})
        every_one = copies(contents, loading.resolve(contents, X86_64).processes)
        return [(one.mixing, [copy.path for copy in one.copies]) for one in every_one]

    own, other = f"/{SITE}/nvidia/nccl/lib/libnccl.so.2", "/opt/nccl/lib/libnccl.so.2.28.3"
    assert found(other) == [(f"the second is loaded too, as {variable} names it", [own, other])]
    assert found(own) == found("/nowhere/libnccl.so.2") == []


@every(
    "path, environment, found",
    [
        ("opt/rdma/lib/libibverbs.so.1.14.56.0", ["LD_LIBRARY_PATH=/opt/rdma/lib"], True),
        ("opt/rdma/lib/libibverbs.so.1.14.56.0", [], False),
        ("usr/lib64/libibverbs.so.1.14.56.0", ["LD_LIBRARY_PATH=/usr/lib64"], False),  # as EFA's installer leaves it
    ],
)
def test_libibverbs_that_hides_the_distributions_is_named(path: str, environment: list[str], *, found: bool) -> None:
    """Built beside that of the packages, or in place of it."""
    folder, _, file = path.rpartition("/")
    old, new = (
        elf("libibverbs.so.1", provides=[f"IBVERBS_PRIVATE_{number}"], defined=["ibv_open"]) for number in (44, 59)
    )
    files: image_files.Files = {
        "usr/lib64/libibverbs.so.1": "->libibverbs.so.1.14.44.0",
        "usr/lib64/libibverbs.so.1.14.44.0": old,
        path: new,
        f"{folder}/libibverbs.so.1": f"->{file}",
        "var/lib/dpkg/info/libibverbs1.list": f"/usr/lib64/libibverbs.so.1.14.44.0\n/usr/lib64/{file}\n",
    }
    if folder == "usr/lib64":
        del files["usr/lib64/libibverbs.so.1.14.44.0"]
    contents = image_files.image(files, {"Env": environment})
    expected = (
        f"rdma-core in each program that opens it by its name: /{path} (IBVERBS_PRIVATE_59) and "
        "/usr/lib64/libibverbs.so.1.14.44.0 (IBVERBS_PRIVATE_44, libibverbs1): libibverbs.so.1 is the first, whose "
        "providers are not the distribution's"
    )
    lines = [str(one) for one in copies(contents, loading.resolve(contents, X86_64).processes)]
    assert lines == [expected] * found


@every("tag, found", [("cpython-313t-x86_64-linux-gnu", 1), ("cpython-313-x86_64-linux-gnu", 0)])
def test_python_without_a_lock_loads_modules_of_its_own(tag: str, found: int) -> None:
    folder = "opt/venv/lib/python3.13t/site-packages"
    files: image_files.Files = {
        f"{folder}/a.cpython-313t-x86_64-linux-gnu.so": elf(needed=["libgomp-11111111.so.1"], rpath="$ORIGIN"),
        f"{folder}/b.{tag}.so": elf(needed=["libgomp-22222222.so.1"], rpath="$ORIGIN"),
        f"{folder}/libgomp-11111111.so.1": elf("libgomp-11111111.so.1", defined=["omp_init"]),
        f"{folder}/libgomp-22222222.so.1": elf("libgomp-22222222.so.1", defined=["omp_end"]),
    }
    contents = image_files.image(files)
    assert len(copies(contents, loading.resolve(contents, X86_64).processes)) == found


@every(
    "name, module, opened",
    [("b", "b", True), ("libpaddle", "libpaddle", True), ("libb", "b", False)],
)
def test_file_without_a_tag_is_opened_if_it_is_a_module(name: str, module: str, opened: bool) -> None:
    """As PaddlePaddle's `libpaddle`, and no library that exports the function of a module that is linked with it."""
    files: image_files.Files = {
        f"{SITE}/a{TAG}": elf(needed=["libgomp-11111111.so.1"], rpath="$ORIGIN"),
        f"{SITE}/{name}.so": elf(
            f"{name}.so", needed=["libgomp-22222222.so.1"], rpath="$ORIGIN", defined=[f"PyInit_{module}"]
        ),
        f"{SITE}/libgomp-11111111.so.1": elf("libgomp-11111111.so.1", defined=["omp_init", "omp_end"]),
        f"{SITE}/libgomp-22222222.so.1": elf("libgomp-22222222.so.1", defined=["omp_init"]),
    }
    contents = image_files.image(files)
    found = copies(contents, loading.resolve(contents, X86_64).processes)
    assert [len(one.copies) for one in found] == ([2] if opened else [])


def test_work_grows_with_packages_and_not_with_their_square() -> None:
    """Of packages with metadata, a record, and a library of a family each."""

    def calls(count: int) -> int:
        files: image_files.Files = {}
        for number in range(count):
            library, requirement = f"libgomp-{number:08x}.so.1", f"p{(number + 1) % count}>=2"
            metadata = f"Metadata-Version: 2.1\nName: p{number}\nVersion: 1.0\nRequires-Dist: {requirement}\n"
            files[f"{SITE}/p{number}-1.0.dist-info/METADATA"] = metadata
            files[f"{SITE}/p{number}-1.0.dist-info/RECORD"] = f"p{number}/m{TAG},,\np{number}/{library},,\n"
            files[f"{SITE}/p{number}/m{TAG}"] = elf(needed=[library], rpath="$ORIGIN")
            files[f"{SITE}/p{number}/{library}"] = elf(library, defined=["omp_init", f"omp_{number}"])
        made = 0

        def count_call(_frame: object, event: str, _argument: object) -> None:
            nonlocal made
            made += event in {"call", "c_call"}

        sys.setprofile(count_call)
        try:
            contents = image_files.image(files)
            assert copies(contents, loading.resolve(contents, X86_64).processes)
            assert len(contradictions.unmet(contents, "amd64")) == count
            assert contested(contents) == []
        finally:
            sys.setprofile(None)
        return made

    few, many = calls(60), calls(480)
    assert many < few * 8
