"""Stand-in of an extension of torch: wants what the real one's build wants, and compiles one kernel."""

import os
import pathlib
import subprocess
import sys

import torch
from setuptools import Extension, find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

here = pathlib.Path(__file__).parent
# TransformerEngine's alone counts them itself; a recipe may write another number here.
facts = {"compilers": lambda: os.cpu_count() or 8}
exec((here / "facts.py").read_text(), facts)
facts["gate"]()


def _init_submodule():
    """Fetch the submodules, as torchaudio and torchtext do."""
    if facts.get("submodules"):
        subprocess.check_call(["git", "submodule", "init"])


_init_submodule()
flags = {"cxx": ["-std=c++17"] if facts.get("old") else [], "nvcc": facts.get("nvcc", [])}
version = facts["version"]() or (here / "version.txt").read_text().strip().lstrip("v")
extension = CUDAExtension if torch.version.cuda and facts.get("cuda", True) else CppExtension
setup(
    name=facts["name"],
    version=version,
    packages=find_packages(),
    py_modules=facts.get("modules", []),
    package_data={"": ["lib/*.so"]},
    install_requires=facts.get("requires", ["torch"]),
    ext_modules=[
        extension(facts["module"], ["extension.cu"], facts.get("libraries", ()), flags),
        # The others have nothing in them but their name.
        *(
            Extension(name, ["other.c"], define_macros=[("NAME", name.rpartition(".")[2])], libraries=libraries)
            for name, libraries in facts.get("others", dict)().items()
        ),
    ],
    cmdclass={"build_ext": BuildExtension},
)
