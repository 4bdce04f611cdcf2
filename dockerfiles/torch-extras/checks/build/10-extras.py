#!/usr/bin/env python3
"""Each extra is installed, at the version that was built, and its compiled parts load."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

WITHOUT_GPU = {**os.environ, "PYTHONPATH": "/srv"}  # where common/checks/sitecustomize.py lies
DRIVER = "libcuda.so.1: cannot open shared object file"
"""The driver comes when a container starts. DeepEP needs it, and DeepSpeed's async_io (op_builder/async_io.py:72 at
v0.19.5)."""

STUB = Path("/usr/local/cuda/lib64/stubs/libcuda.so")
"""What stands in for the driver where CUDA's development packages are."""

SAYS = {"apex": "apex.optimizers", "flash_attn_4": "flash_attn.cute"}
"""What is imported of an extra, if not a module of its name: the `apex` on the Python index is not NVIDIA's."""


def error(*words: str) -> str:
    """Return the last line of what a command that fails says; nothing of one that does not."""
    done = subprocess.run(words, env=WITHOUT_GPU, capture_output=True, text=True, check=False)
    return (done.stderr.strip().rpartition("\n")[2] or f"exit {done.returncode}") if done.returncode else ""


def fault(code: str) -> str:
    """Return why code fails beside torch, whose libraries it needs; nothing if the driver alone is missing."""
    # One process each: two of them may define the same operators.
    words = [sys.executable, "-c", f"import torch, ctypes, importlib; {code}"]
    without_stub = error(*words)
    if DRIVER not in without_stub:
        return without_stub
    return error("/srv/without-driver", *words) if STUB.exists() else ""


wheels = [wheel for folder in Path("/media").iterdir() if folder.name != "rest" for wheel in folder.glob("*.whl")]
for wheel in wheels:
    name, version = wheel.name.split("-")[:2]
    installed = distribution(name)
    if installed.version != version:
        sys.exit(f"{name}: {version} was built, but {installed.version} is installed")
    if reason := fault(f"importlib.import_module({SAYS.get(name, name)!r})"):
        sys.exit(f"{name} cannot be imported: {reason}")
    compiled = [file for file in installed.files or [] if ".so" in file.suffixes]
    for file in compiled:
        path = Path(str(file.locate()))
        module = str(file).split(".")[0].replace("/", ".")
        importable = "cpython" in path.name or "abi3" in path.name
        if reason := fault(f"importlib.import_module({module!r})" if importable else f"ctypes.CDLL({str(path)!r})"):
            sys.exit(f"{file} cannot be loaded: {reason}")
    print(f"{name} {version}: {len(compiled)} compiled modules")
