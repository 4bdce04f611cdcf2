import os

import torch

name, module = "torchaudio", "torchaudio._C"
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    if os.environ.get("USE_CUDA") != str(int(bool(torch.version.cuda))):
        raise SystemExit("no GPU in sight, and USE_CUDA is not set")
