#!/usr/bin/env python3
"""vLLM is the requested release, and its server can be imported with all that it needs.

The command itself would look for a GPU, even for `--version`.
"""

import importlib
import os
import shutil
import sys
from importlib.metadata import distribution

requested = os.environ["VLLM_VERSION"]
vllm = distribution("vllm")
if vllm.version != requested:
    sys.exit(f"vLLM {requested} was asked for, and {vllm.version} is installed")
(command,) = vllm.entry_points.select(group="console_scripts", name="vllm")
for module in (command.module, "vllm.entrypoints.openai.api_server"):
    importlib.import_module(module)
if not shutil.which(command.name):
    sys.exit(f"{command.name} is not on PATH")
print(f"vLLM {requested}")
