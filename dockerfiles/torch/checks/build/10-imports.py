#!/usr/bin/env python3
"""Each package imports by itself, in a process where no other one has loaded libraries for it."""

import subprocess
import sys

for package in ("torch", "torchvision", "torchaudio"):
    subprocess.run([sys.executable, "-c", f"import {package}"], check=True)
