#!/usr/bin/env python3
"""The versions are those asked for, which the image carries in its environment.

Builds for one CUDA version call themselves 2.0.1+cu118; the part after the plus counts only when it was asked for.
What is asked for as 2.0.0-rc1 calls itself 2.0.0rc1 (PEP 440's normal form).
"""

import os
import re
import sys
from importlib.metadata import version

variables = {"torch": "TORCH_VERSION", "torchvision": "TORCH_VISION_VERSION", "torchaudio": "TORCH_AUDIO_VERSION"}
for package, variable in variables.items():
    want = re.sub(r"[-._]?rc[-._]?", "rc", os.environ[variable])
    if not want and package != "torch":  # its companions can be left out
        continue
    have = version(package)
    if want != (have if "+" in want else have.partition("+")[0]):
        sys.exit(f"{package}: asked for {want or 'none'} ({variable}), but {have} is installed")
