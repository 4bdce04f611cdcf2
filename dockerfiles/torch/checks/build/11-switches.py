#!/usr/bin/env python3
"""What is switched on imports, each in a process of its own: TransformerEngine's part for torch, FlashAttention 3.

Both are linked with the GPU's driver in some releases (NVIDIA/TransformerEngine#3381). It comes when a container
starts: it alone may be missing here, and `gpu.py` imports them on a machine with a GPU.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

MODULES = {"transformer_engine": "transformer_engine.pytorch", "flash_attn_3": "flash_attn_interface"}
DRIVER = "libcuda.so.1: cannot open shared object file"

for package, module in MODULES.items():
    try:
        found = version(package)
    except PackageNotFoundError:
        continue  # left out
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    said = done.stderr.strip().rpartition("\n")[2]
    if done.returncode and DRIVER not in said:
        sys.exit(f"{package} {found}: {module} cannot be imported: {said}")
    print(f"{package} {found} {'imports' if done.returncode == 0 else 'wants the driver'}")
