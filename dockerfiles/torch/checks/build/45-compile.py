#!/usr/bin/env python3
"""Triton is the one that torch asks for, and torch.compile gives the right numbers.

Its default backend compiles C++; where the image has no compiler, what comes before it is tried: a function is traced,
split into graphs and run.
"""

import shutil
import sys
from importlib.metadata import requires, version

import torch
from packaging.requirements import Requirement

for text in requires("torch") or []:
    want = Requirement(text)
    if want.name in {"triton", "pytorch-triton"} and not want.specifier.contains(version(want.name), prereleases=True):
        sys.exit(f"torch asks for {want}, but {want.name} {version(want.name)} is installed")

backend = "inductor" if shutil.which("g++") else "aot_eager"
compiled = torch.compile(lambda x: x * 2 + 1, backend=backend)
result = compiled(torch.arange(4.0))
if not torch.equal(result, torch.arange(4.0) * 2 + 1):
    sys.exit(f"torch.compile, backend {backend}, gives {result.tolist()}")
print(f"backend {backend}")
