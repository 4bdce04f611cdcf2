import os

import torch

name, module, libraries, requires = "torchvision", "torchvision._C", ["png16"], ["torch", "numpy"]
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    if torch.version.cuda and os.environ.get("FORCE_CUDA") != "1":
        raise SystemExit("no GPU in sight, and FORCE_CUDA is not set: CUDA's operators would be left out")
