#!/usr/bin/env python3
"""Each extra that was built is installed, at that version, and its compiled parts load."""

import importlib
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import torch  # noqa: F401  # its libraries are those that the compiled parts need

WITHOUT_GPU = {**os.environ, "PYTHONPATH": "/srv"}  # where common/checks/sitecustomize.py lies
DRIVER = "libcuda.so.1: cannot open shared object file"
"""The driver comes when a container starts. DeepSpeed's async_io needs it (op_builder/async_io.py:72 at v0.19.5)."""

SAYS = {"apex": "apex.optimizers", "flash_attn_4": "flash_attn.cute"}
"""What is imported of an extra, if not a module of its name: the `apex` on the Python index is not NVIDIA's."""

wheels = [wheel for folder in Path("/media").iterdir() if folder.name != "rest" for wheel in folder.glob("*.whl")]
for wheel in wheels:
    name, version = wheel.name.split("-")[:2]
    installed = distribution(name)
    if installed.version != version:
        sys.exit(f"{name}: {version} was built, but {installed.version} is installed")
    importlib.import_module(SAYS.get(name, name))
    compiled = [file for file in installed.files or [] if ".so" in file.suffixes]
    for file in compiled:
        path = Path(str(file.locate()))
        module = str(file).split(".")[0].replace("/", ".")
        # One process each: two of them may define the same operators.
        code = f"import torch, importlib; importlib.import_module({module!r})"
        if "cpython" not in path.name and "abi3" not in path.name:
            code = f"import torch, ctypes; ctypes.CDLL({str(path)!r})"
        done = subprocess.run(
            [sys.executable, "-c", code], env=WITHOUT_GPU, capture_output=True, text=True, check=False
        )
        error = done.stderr.strip().rpartition("\n")[2]
        if done.returncode and DRIVER not in error:
            sys.exit(f"{file} cannot be loaded: {error}")
    print(f"{name} {version}: {len(compiled)} compiled modules")
