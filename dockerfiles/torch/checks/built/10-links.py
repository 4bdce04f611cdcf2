#!/usr/bin/env python3
"""torch is linked with the system's NCCL, cuDNN, and with the UCC and UCX of HPC-X, and says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

if not torch.distributed.is_ucc_available():
    sys.exit("torch was built without UCC")
system = "/usr/lib"
folders = {
    r"libnccl\.so\.2": system,
    r"libcudnn\.so\.\d+": system,
    r"libucc\.so\.1": os.environ["HPCX_UCC_DIR"],
    r"libucp\.so\.0": os.environ["HPCX_UCX_DIR"],
}
libraries = sorted(Path(torch.__file__).parent.glob("lib/*.so"))
for name, folder in folders.items():
    linked = False
    for library in libraries:
        dynamic = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
        if re.search(rf"NEEDED +{name}\n", dynamic):
            links = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
            match = re.search(rf"{name} => (\S+)", links)
            linked = match is not None and match[1].startswith((folder, "/lib/") if folder == system else folder)
            if not linked:
                sys.exit(f"{library.name} does not take {name} from {folder}: {match and match[1]}")
    if not linked:
        sys.exit(f"no library of torch is linked with {name}")
