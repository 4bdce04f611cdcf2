"""Stand-in of PyTorch's setup.py: hands its environment's switches to CMake, and packs what comes out."""

import os
import pathlib
import platform
import shutil
import subprocess
import sysconfig

import numpy
import pybind11
from setuptools import find_packages, setup
from setuptools.dist import Distribution

root = pathlib.Path(__file__).parent.resolve()
package = root / "torch"
if platform.machine() == "aarch64" and os.environ.get("USE_PRIORITIZED_TEXT_FOR_LD") != "1":
    raise SystemExit("USE_PRIORITIZED_TEXT_FOR_LD is not set: a build with CUDA for arm64 can be too large to link")
switches = [f"-D{key}={value}" for key, value in os.environ.items() if key.startswith(("USE_", "BUILD_"))]
version = os.environ.get("PYTORCH_BUILD_VERSION", (root / "version.txt").read_text().strip())
major, minor = version.split(".")[:2]
# tools/setup_helpers/cmake.py, "Detect build dependencies from python lib path": CMake is told of NVSHMEM's wheel where there is one. Releases
# from 2.14 on have no such file.
nvshmem = pathlib.Path(sysconfig.get_path("purelib"), "nvidia/nvshmem")
if nvshmem.exists() and (int(major), int(minor)) < (2, 14):
    switches.append(f"-DNVSHMEM_PY_DIR={nvshmem}")
subprocess.run(["cmake", "-S", str(root), "-B", "build", *switches], check=True)
subprocess.run(["cmake", "--build", "build", "--parallel", os.environ["MAX_JOBS"]], check=True)
(package / "lib").mkdir(exist_ok=True)
for library in pathlib.Path("build").glob("libtorch_*.so"):
    shutil.copy(library, package / "lib")
shutil.copytree(pathlib.Path(pybind11.get_include()) / "pybind11", package / "include/pybind11", dirs_exist_ok=True)
if (int(major), int(minor)) < (2, 3) and int(numpy.__version__.split(".")[0]) > 1:
    raise SystemExit("torch before 2.3 does not compile with the headers of NumPy 2")
header = f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n"
(package / "include/torch/version.h").write_text(header)
cuda = ".".join(os.environ["CUDA_VERSION"].split(".")[:2]) if os.environ.get("USE_CUDA") == "1" else None
(package / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="torch",
    version=version,
    packages=find_packages(include=["torch", "torch.*"]),
    package_data={"torch": ["lib/*", "include/*/*", "include/pybind11/*/*"]},
    # setup.py of the real one: `extra_install_requires += ....split("|")`.
    install_requires=["numpy", *filter(None, os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "").split("|"))],
    distclass=Binary,
)
