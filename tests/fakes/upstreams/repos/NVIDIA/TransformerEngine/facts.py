import os
import pathlib
from importlib.metadata import distribution

name, module, requires = "transformer_engine", "transformer_engine_torch", ["torch"]
version = lambda: None
release = tuple(int(part) for part in pathlib.Path("version.txt").read_text().strip().split("."))
if release >= (2, 18):
    requires.append("nvidia-cudnn-frontend>=1.25.0")  # build_tools/pytorch.py:33 at v2.18


def gate():
    if os.environ.get("NVTE_FRAMEWORK") != "pytorch":
        raise SystemExit("NVTE_FRAMEWORK is not pytorch")
    # build_tools/utils.py:255-271 at v2.18.
    if release >= (2, 18) and not distribution("nvidia-cudnn-frontend").locate_file("include/cudnn_frontend.h").is_file():
        raise SystemExit("nvidia-cudnn-frontend has no header cudnn_frontend.h")
    numbers = os.environ["NVTE_CUDA_ARCHS"].split(";")
    os.environ["TORCH_CUDA_ARCH_LIST"] = " ".join(f"{number[:-1]}.{number[-1]}" for number in numbers)
