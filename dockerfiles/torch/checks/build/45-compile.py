#!/usr/bin/env python3
"""torch names the Triton that it compiles with, and torch.compile gives the right numbers.

Its default backend compiles C++; where the image has no compiler, what comes before it is tried: a function is traced,
split into graphs and run.
"""

import platform
import re
import shutil
import sys
from importlib.metadata import requires

import torch

if not hasattr(torch, "compile"):
    sys.exit()  # before 2.0

# Whether it is the one that is installed, `pip check` says. Below 2.9, torch needs a Triton that has no wheel for
# arm64: triton on the Python index has some from 3.5.0 on.
version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
has_triton = torch.version.cuda and (platform.machine() != "aarch64" or version >= (2, 9))
if has_triton and not any(re.match(r"(pytorch-)?triton\b", text) for text in requires("torch") or []):
    sys.exit("torch asks for no Triton: torch.compile has nothing to compile with for a GPU")

backend = "inductor" if shutil.which("g++") else "aot_eager"
compiled = torch.compile(lambda x: x * 2 + 1, backend=backend)
result = compiled(torch.arange(4.0))
if not torch.equal(result, torch.arange(4.0) * 2 + 1):
    sys.exit(f"torch.compile, backend {backend}, gives {result.tolist()}")
print(f"backend {backend}")
