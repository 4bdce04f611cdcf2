"""Stand-in of torch's extension builder: nvcc for the architectures of TORCH_CUDA_ARCH_LIST, pybind11."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sysconfig

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from torch.version import __version__

CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")
_TORCH = pathlib.Path(__file__).parents[1]
_VERSION = [int(part) for part in __version__.split(".")[:2]]


def _codes():
    for name in os.environ["TORCH_CUDA_ARCH_LIST"].split():
        number = name.replace(".", "").replace("+PTX", "")
        yield f"-gencode=arch=compute_{number},code=sm_{number}"
        if name.endswith("+PTX"):
            yield f"-gencode=arch=compute_{number},code=compute_{number}"


def _compile(name, sources, target, libraries=(), flags=()):
    # What an extension names itself wins.
    if not any(flag.startswith("-std=") for flag in flags):
        flags = [*flags, "-std=c++20" if _VERSION >= [2, 12] else "-std=c++17"]
    command = [f"{CUDA_HOME}/bin/nvcc", *_codes(), "-shared", "-Xcompiler", "-fPIC", f"-DTORCH_EXTENSION_NAME={name}"]
    command += [f"-I{_TORCH}/include", f"-I{sysconfig.get_paths()['include']}", f"-I{CUDA_HOME}/include"]
    command += [
        *flags,
        *map(str, sources),
        "-o",
        str(target),
        f"-L{CUDA_HOME}/lib64",
        "-lcudart",
        *(f"-l{library}" for library in libraries),
    ]
    subprocess.run(command, check=True)


def load(name, sources, build_directory):
    if not shutil.which("ninja"):
        raise RuntimeError("Ninja is required to load C++ extensions")
    target = pathlib.Path(build_directory, f"{name}.so")
    _compile(name, sources, target)
    spec = importlib.util.spec_from_file_location(name, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def CUDAExtension(name, sources, libraries=(), extra_compile_args=None):
    flags = (extra_compile_args or {}).get("cxx", [])
    return Extension(name, sources, libraries=list(libraries), extra_compile_args=flags)


class BuildExtension(build_ext):
    def build_extension(self, extension):
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        _compile(extension.name.split(".")[-1], extension.sources, target, extension.libraries, extension.extra_compile_args)
