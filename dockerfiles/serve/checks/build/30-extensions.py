#!/usr/bin/env python3
"""Each compiled module of vLLM is resolved, every symbol of it, against the image's torch and CUDA.

A build has no GPU, and so no driver: a library stands in for it that has each of its functions that a module names, and
does nothing.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

stub = Path("/tmp/driver/libcuda.so.1")  # noqa: S108 - a tmpfs of the build
compiled = [Path(str(file.locate())) for file in files("vllm") or [] if ".so" in file.suffixes]
named = subprocess.run(["nm", "-D", "--undefined-only", *compiled], capture_output=True, text=True, check=True).stdout
functions = sorted(set(re.findall(r" U (cu[A-Z]\w*)$", named, re.MULTILINE)))
stub.parent.mkdir()
subprocess.run(
    ["gcc", "-shared", "-o", stub, f"-Wl,-soname,{stub.name}", "-x", "c", "-"],
    input="".join(f"void {name}(void) {{}}\n" for name in functions),
    text=True,
    check=True,
)
environment = {**os.environ, "LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{stub.parent}".strip(":")}
for path in compiled:
    # One process each: two of them may define the same operators. ctypes resolves all symbols at once.
    code = f"import torch, ctypes; ctypes.CDLL({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{path.name} cannot be loaded: {done.stderr.strip().rpartition(chr(10))[2]}")
if not compiled:
    sys.exit("vLLM has no compiled module: it is no wheel for GPUs")
print(f"{len(compiled)} compiled modules")
