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
if _VERSION < [2, 2]:
    from pkg_resources import packaging  # noqa: F401


def _codes():
    for name in os.environ["TORCH_CUDA_ARCH_LIST"].split():
        number = name.replace(".", "").replace("+PTX", "")
        yield f"-gencode=arch=compute_{number},code=sm_{number}"
        if name.endswith("+PTX"):
            yield f"-gencode=arch=compute_{number},code=compute_{number}"


def _compile(name, sources, target, libraries=(), flags=(), cuda=True):
    # What an extension names itself wins.
    if not any(flag.startswith("-std=") for flag in flags):
        flags = [*flags, "-std=c++20" if _VERSION >= [2, 12] else "-std=c++17"]
    if cuda:
        command = [f"{CUDA_HOME}/bin/nvcc", *_codes(), "-Xcompiler", "-fPIC", f"-I{CUDA_HOME}/include"]
        libraries = [f"-L{CUDA_HOME}/lib64", "-lcudart", *(f"-l{library}" for library in libraries)]
        sources = map(str, sources)
    else:
        command = ["g++", "-fPIC", "-DWITHOUT_CUDA"]
        libraries = [f"-l{library}" for library in libraries]
        sources = ["-x", "c++", *map(str, sources), "-x", "none"]
    command += ["-shared", f"-DTORCH_EXTENSION_NAME={name}", f"-I{_TORCH}/include", f"-I{sysconfig.get_paths()['include']}"]
    command += [*flags, *sources, "-o", str(target), *libraries]
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
    given = extra_compile_args or {}
    flags = [*given.get("cxx", []), *given.get("nvcc", [])]
    return Extension(name, sources, libraries=list(libraries), extra_compile_args=flags)


def CppExtension(name, sources, libraries=(), extra_compile_args=None):
    extension = CUDAExtension(name, sources, libraries, {**(extra_compile_args or {}), "nvcc": []})
    extension.without_cuda = True
    return extension


class BuildExtension(build_ext):
    def build_extension(self, extension):
        if extension.define_macros:  # a plain extension in C
            super().build_extension(extension)
            return
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        name, cuda = extension.name.split(".")[-1], not hasattr(extension, "without_cuda")
        _compile(name, extension.sources, target, extension.libraries, extension.extra_compile_args, cuda)
