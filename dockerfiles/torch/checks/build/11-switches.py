#!/usr/bin/env python3
"""What is switched on imports, each in a process of its own: TransformerEngine's part for torch, FlashAttention 3.

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

for module in MODULES:
    if not find_spec(module.partition(".")[0]):
        continue  # left out
    command = [sys.executable, "-c", f"import {module}"]
    done = subprocess.run(command, env=WITHOUT_GPU, capture_output=True, text=True, check=False)
    error = done.stderr.strip().rpartition("\n")[2]
    if done.returncode and DRIVER not in error:
        sys.exit(f"{module} cannot be imported: {error}")
    print(f"{module} {'imports' if done.returncode == 0 else 'wants the driver'}")
