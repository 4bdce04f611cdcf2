#!/usr/bin/env python3
"""Every library that a program or library of the Python environment names is found, as far as it can be without a GPU.

torchvision, torchaudio and Triton's plugins name libraries of torch and Triton, and torchaudio's until 2.10 such as lie
beside them, without saying where: their Python packages load those first. So `ldd` searches beside a library, and where
torch and Triton, once imported, have loaded from.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

# Not found in an image, each for its reason. Nothing loads the libraries that name them unless asked to.
ELSEWHERE = {
    r"lib(av|sw)[a-z]+\.so\.\d+": "one of the FFmpegs that torchaudio's wheels until 2.8 can read with",
    r"libsox\.so": "what they can read with as well",
    r"libcuda\.so\.1": "the GPU's driver, mounted into the container by the NVIDIA container toolkit",
    r"libnvidia-ml\.so\.1": "the GPU's driver as well",
    r"libibverbs\.so\.1": "InfiniBand, for cuFile and NVSHMEM; belongs to the network's own software",
    r"libmlx5\.so\.1": "as libibverbs",
    r"librdmacm\.so\.1": "as libibverbs",
    r"libfabric\.so\.1": "one of NVSHMEM's transports, for EFA and Slingshot",
    r"libucp\.so\.0": "one of NVSHMEM's transports, UCX",
    r"libucs\.so\.0": "as libucp",
    r"libmpi\.so\.40": "one of the ways to start NVSHMEM, under Open MPI",
    r"liboshmem\.so\.40": "one of the ways to start NVSHMEM, under OpenSHMEM",
    r"libquadmath\.so\.0": "named by a libgfortran in torch's wheels for CUDA 13.2, which no library of theirs names",
    r"libpmix\.so\.2": "one of the ways to start NVSHMEM, under PMIx",
}
ABSENT = re.compile("|".join(ELSEWHERE))

for package in ("torch", "triton"):
    if importlib.util.find_spec(package):
        importlib.import_module(package)
loaded = re.findall(r"(/\S+)/[^/\s]+\.so\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE)


def is_elf(path: Path) -> bool:
    """Whether `path` is a program or shared library, by its first four bytes."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


paths = [p for p in Path(sys.prefix).rglob("*") if p.is_file() and not p.is_symlink() and is_elf(p)]
missing = []
for path in paths:
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(dict.fromkeys([str(path.parent), *loaded]))}
    ldd = subprocess.run(["ldd", path], env=environment, capture_output=True, text=True, check=False)
    names = re.findall(r"(\S+) => not found", ldd.stdout)
    missing += [f"{path} needs {name}, which is not found" for name in names if not ABSENT.fullmatch(name)]
if not paths or missing:
    sys.exit("\n".join(missing) or f"no library at all below {sys.prefix}")
print(f"{len(paths)} programs and libraries")
