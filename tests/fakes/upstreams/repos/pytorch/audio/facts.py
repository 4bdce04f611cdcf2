import os
import pathlib
import subprocess

import torch

name, module, submodules = "torchaudio", "torchaudio._C", True
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    if os.environ.get("USE_CUDA") != str(int(bool(torch.version.cuda))):
        raise SystemExit("no GPU in sight, and USE_CUDA is not set")
    for switch in ("BUILD_SOX", "USE_FFMPEG", "BUILD_CTC_DECODER"):
        if os.environ.get(switch) != "0":
            raise SystemExit(f"{switch} is on, and would download what it is made of")
    # Two libraries, one of which names the other without saying where it lies, as until 2.10.
    lib = pathlib.Path("torchaudio/lib").resolve()
    lib.mkdir(exist_ok=True)
    for library, source, more in (
        ("libtorchaudio.so", "int one(void) { return 1; }", []),
        ("_torchaudio.so", "int one(void); int two(void) { return one() + 1; }", [f"-L{lib}", "-ltorchaudio"]),
    ):
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", lib / library, "-x", "none", f"-Wl,-soname,{library}", *more]
        subprocess.run(command, input=source, text=True, check=True)
