#!/usr/bin/env python3
"""The image's nvcc and torch compile an extension with a kernel, for the architectures of the image, and it loads."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from torch.utils.cpp_extension import load

SOURCE = """
#include <torch/extension.h>
__global__ void twice(float* numbers) { numbers[threadIdx.x] *= 2; }
int answer() { return 42; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("answer", &answer); }
"""

with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "extension.cu")
    source.write_text(SOURCE)
    module = load("slipway_extension", [str(source)], build_directory=folder)
    if module.answer() != 42:
        sys.exit("the extension gives a wrong answer")
    code = subprocess.run(
        ["cuobjdump", "--list-elf", module.__file__], capture_output=True, text=True, check=True
    ).stdout
compiled = set(re.findall(r"\bsm_([0-9]+)", code))
listed = {re.sub(r"\D", "", name.split("+")[0]) for name in os.environ["TORCH_CUDA_ARCH_LIST"].split()}
if not listed or listed - compiled:
    sys.exit(f"the extension has machine code for {sorted(compiled)}, not for all of {sorted(listed)}")
