#!/usr/bin/env python3
"""Triton is the one that torch asks for, and torch.compile gives the right numbers.

Its default backend compiles C++; where the image has no compiler, what comes before it is tried: a function is traced,
split into graphs and run.
"""

import re
import shutil
import sys
from importlib.metadata import requires, version

import torch

for text in requires("torch") or []:
    pin = re.match(r"(triton|pytorch-triton) ?\(?==([^;) ]+)", text)
    if pin and version(pin[1]) != pin[2]:
        sys.exit(f"torch asks for {pin[1]} {pin[2]}, but {version(pin[1])} is installed")

backend = "inductor" if shutil.which("g++") else "aot_eager"
compiled = torch.compile(lambda x: x * 2 + 1, backend=backend)
result = compiled(torch.arange(4.0))
if not torch.equal(result, torch.arange(4.0) * 2 + 1):
    sys.exit(f"torch.compile, backend {backend}, gives {result.tolist()}")
print(f"backend {backend}")
