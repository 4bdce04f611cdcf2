"""packages WHEELS DIRECTORY: NVIDIA's wheels of CUDA 13.2 as the packages that its apt repository has.

Names, versions and places are those of NVIDIA's packages; a place is below /usr/local/cuda-13.2 itself and not below its
targets/x86_64-linux, to which the real ones are linked. DIRECTORY/parent is what the images of nvidia/cuda are made of,
DIRECTORY/served what is installed on top of them. Stand-ins, for want of a wheel: the stubs of the driver's libraries,
DCGM, and another distribution's Python, which is Debian's by that name.
"""

import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.upstreams.common.debs import LIB, Repository, python

ROOT = "usr/local/cuda-13.2"

TOOLKIT = {
    "nvidia_cuda_runtime": ("cuda-cudart-13-2", "cuda-cudart-dev-13-2"),
    "nvidia_cuda_nvrtc": ("cuda-nvrtc-13-2", "cuda-nvrtc-dev-13-2"),
    "nvidia_cublas": ("libcublas-13-2", "libcublas-dev-13-2"),
    "nvidia_curand": ("libcurand-13-2", "libcurand-dev-13-2"),
    "nvidia_cusolver": ("libcusolver-13-2", "libcusolver-dev-13-2"),
    "nvidia_cusparse": ("libcusparse-13-2", "libcusparse-dev-13-2"),
    "nvidia_nvjitlink": ("libnvjitlink-13-2", "libnvjitlink-dev-13-2"),
    "nvidia_cuda_cccl": (None, "cuda-cccl-13-2"),
    "nvidia_cuda_crt": (None, "cuda-crt-13-2"),
    "nvidia_cuda_cuobjdump": (None, "cuda-cuobjdump-13-2"),
    "nvidia_cuda_nvcc": (None, "cuda-nvcc-13-2"),
    "nvidia_cuda_profiler_api": (None, "cuda-profiler-api-13-2"),
    "nvidia_nvml_dev": (None, "cuda-nvml-dev-13-2"),
    "nvidia_nvvm": (None, "libnvvm-13-2"),
}
"""A wheel, the package of its shared libraries, and that of the rest: all of it where there is no other."""

NEEDS = {"cuda-nvcc-13-2": "cuda-crt-13-2, libnvvm-13-2, g++"}
SERVED = {"cuda-cuobjdump-13-2"}
"""Of the toolkit, what NVIDIA's development images lack."""

NCCL = "2.30.4"
"""The release that a stack installs in place of the parent's."""


def unpacked(wheels: Path, folder: Path) -> Iterator[tuple[str, str, dict[str, Path]]]:
    """Yield each wheel's name and version, and its files by their places below bin, include, lib, ..."""
    for wheel in sorted(wheels.glob("nvidia_*.whl")):
        name, version = wheel.name.split("-")[:2]
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(folder)
        found = [path for path in (folder / "nvidia").rglob("*") if path.is_file() and path.name != "__init__.py"]
        yield name, version, {"/".join(path.relative_to(folder).parts[2:]): path for path in found}
        shutil.rmtree(folder / "nvidia")


def shared(place: str) -> bool:
    return re.fullmatch(r"lib/lib[^/]*\.so\.[^/]*", place) is not None


def links(root: str, places: Iterator[str]) -> dict[str, str]:
    """Return the links by which the linker finds shared libraries."""
    return {f"{root}/{Path(place).name.split('.so.')[0]}.so": Path(place).name for place in places}


def add_toolkit(repository: Repository, wheel: str, version: str, files: dict[str, Path]) -> None:
    libraries, rest = TOOLKIT[wheel]
    runtime = {place: path for place, path in files.items() if libraries and shared(place)}
    package = f"{version}-1"
    if libraries:
        config: dict[str, object] = {}
        more = {}
        if libraries == "cuda-cudart-13-2":
            config = {"etc/ld.so.conf.d/cuda-13-2.conf": f"/{ROOT}/lib64\n"}
            more = {f"{ROOT}/lib64": "lib"}
        placed = {f"{ROOT}/{place}": path for place, path in runtime.items()}
        repository.add(libraries, package, {**placed, **config}, links=more)
    repository.add(
        rest,
        package,
        {f"{ROOT}/{place}": path for place, path in files.items() if place not in runtime},
        f"{libraries} (= {package})" if libraries else NEEDS.get(rest, ""),
        links(f"{ROOT}/lib", iter(runtime)),
    )


def add_library(repository: Repository, runtime: str, dev: str, version: str, files: dict[str, Path]) -> None:
    """Add the packages of a library that is not the toolkit's, in the distribution's own folders."""
    libraries = {place: path for place, path in files.items() if shared(place)}
    headers = {place: path for place, path in files.items() if place.startswith("include/")}
    repository.add(runtime, version, {f"{LIB}/{Path(place).name}": path for place, path in libraries.items()})
    repository.add(
        dev,
        version,
        {f"usr/{place}": path for place, path in headers.items()},
        f"{runtime} (= {version})",
        links(LIB, iter(libraries)),
    )


def add_standins(parent: Repository, served: Repository) -> None:
    stubs: dict[str, object] = {
        f"{ROOT}/lib/stubs/libcuda.so": ("int cuInit(unsigned flags) { (void)flags; return 100; }", "libcuda.so.1"),
        f"{ROOT}/lib/stubs/libnvidia-ml.so": ("int nvmlInit_v2(void) { return 9; }", "libnvidia-ml.so.1"),
    }
    parent.add("cuda-driver-dev-13-2", "13.2.75-1", stubs)
    dcgmi = "#!/bin/sh\necho dcgmi version: 4.4.2\n"
    served.add("datacenter-gpu-manager-4-cuda13", "1:4.4.2-1", {"usr/bin/dcgmi": dcgmi})
    python(served, "3.12")


def main() -> None:
    """Make both repositories."""
    wheels, top = Path(sys.argv[1]), Path(sys.argv[2])
    parent, served = Repository(top / "parent"), Repository(top / "served")
    with tempfile.TemporaryDirectory() as folder:
        for wheel, version, files in unpacked(wheels, Path(folder)):
            if wheel == "nvidia_nccl_cu13":
                repository = served if version == NCCL else parent
                add_library(repository, "libnccl2", "libnccl-dev", f"{version}-1+cuda13.2", files)
            elif wheel == "nvidia_cudnn_cu13":
                add_library(parent, "libcudnn9-cuda-13", "libcudnn9-dev-cuda-13", f"{version}-1", files)
            else:
                repository = served if TOOLKIT[wheel][1] in SERVED else parent
                add_toolkit(repository, wheel, version, files)
    add_standins(parent, served)
    for repository in (parent, served):
        repository.index()


if __name__ == "__main__":
    main()
