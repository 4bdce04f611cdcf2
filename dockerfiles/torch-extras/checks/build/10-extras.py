#!/usr/bin/env python3
"""Each extra that was built is installed, at that version, and its compiled parts load."""

import importlib
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import torch  # noqa: F401  # its libraries are those that the compiled parts need

SAYS = {"apex": "apex.optimizers"}
"""What an extra has that another package of its name has not: the `apex` on the Python index is not NVIDIA's."""

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
        subprocess.run([sys.executable, "-c", code], check=True)
    print(f"{name} {version}: {len(compiled)} compiled modules")
