#!/usr/bin/env python3
"""What is switched on imports, each in a process of its own: TransformerEngine's part for torch, FlashAttention 3.

No process then has a second cuDNN: with two of different versions, calls of either fail. TransformerEngine takes the
parent's before that of NVIDIA's wheel unless CUDNN_HOME names the latter (transformer_engine/common/__init__.py:312 at
v2.17.1).

Both are linked with the GPU's driver in some releases (NVIDIA/TransformerEngine#3381). It comes when a container
starts: it alone may be missing here, and `gpu.py` imports them on a machine with a GPU.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

WITHOUT_GPU = {**os.environ, "PYTHONPATH": "/srv"}  # where common/checks/sitecustomize.py lies
MODULES = ("transformer_engine.pytorch", "flash_attn_interface")
DRIVER = "libcuda.so.1: cannot open shared object file"
PROGRAM = r"""
import importlib, re, sys
import torch
try:
    importlib.import_module(sys.argv[1])
finally:
    with open("/proc/self/maps") as maps:
        print(*sorted(set(re.findall(r"/\S+/libcudnn\.so\S*", maps.read()))))
"""
"""Imports a module and prints the cuDNNs that are then loaded."""

for module in MODULES:
    if not find_spec(module.partition(".")[0]):
        continue  # left out
    command = [sys.executable, "-c", PROGRAM, module]
    done = subprocess.run(command, env=WITHOUT_GPU, capture_output=True, text=True, check=False)
    error = done.stderr.strip().rpartition("\n")[2]
    if done.returncode and DRIVER not in error:
        sys.exit(f"{module} cannot be imported: {error}")
    if " " in (loaded := done.stdout.strip()):
        sys.exit(f"{module} loads a second cuDNN: {loaded}; CUDNN_HOME must name the folder of torch's")
    print(f"{module} {'imports' if done.returncode == 0 else 'wants the driver'}")
