#!/usr/bin/env python3
"""Each package imports by itself, in a process where no other one has loaded libraries for it."""

import os
import subprocess
import sys

# torchaudio is left out of an image that asks for no version of it.
for package in ("torch", "torchvision", *(["torchaudio"] if os.environ["TORCH_AUDIO_VERSION"] else [])):
    subprocess.run([sys.executable, "-c", f"import {package}"], check=True)
