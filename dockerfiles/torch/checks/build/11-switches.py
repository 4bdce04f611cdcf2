#!/usr/bin/env python3
"""What is switched on imports, each in a process of its own: TransformerEngine's part for torch, FlashAttention 3.

Neither process has parts of two cuDNNs, which fail together: common/layers/prefer-cudnn says how it comes to that.

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
        print("\ncuDNN:", *sorted(set(re.findall(r"(/\S+)/libcudnn[^/\s]*\.so", maps.read()))))
"""
"""Imports a module; prints last the folders of the cuDNN that is then loaded."""

for module in MODULES:
    if not find_spec(module.partition(".")[0]):
        continue  # left out
    command = [sys.executable, "-c", PROGRAM, module]
    done = subprocess.run(command, env=WITHOUT_GPU, capture_output=True, text=True, check=False)
    error = done.stderr.strip().rpartition("\n")[2]
    if done.returncode and DRIVER not in error:
        sys.exit(f"{module} cannot be imported: {error}")
    folders = done.stdout.rpartition("\ncuDNN:")[2].split()
    if len(folders) > 1:
        sys.exit(f"{module} loads cuDNN of {' and of '.join(folders)}; ldconfig -p must name that of torch first")
    print(f"{module} {'imports' if done.returncode == 0 else 'wants the driver'}")
