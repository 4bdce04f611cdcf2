import subprocess
import sys

from setuptools import Extension, setup

includes = subprocess.check_output([sys.executable, "-m", "pybind11", "--includes"], text=True).split()
# As there: if this fails, the installation succeeds without.
helpers = Extension(
    "megatron.core.datasets.helpers_cpp",
    ["megatron/core/datasets/helpers.cpp"],
    extra_compile_args=[*includes, "-std=c++17"],
    optional=True,
)
setup(ext_modules=[helpers])
