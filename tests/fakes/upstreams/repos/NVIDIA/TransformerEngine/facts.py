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
    # setup.py:147 and :249 at v2.17.1; the other file has the number of compilers.
    if release >= (2, 17):
        header = pathlib.Path(os.environ.get("NCCL_HOME", "/usr")) / "include/nccl.h"
        if os.environ.get("NVTE_WITH_NCCL_EP") != "0" and not header.is_file():
            raise SystemExit("there is no nccl.h, and NVTE_WITH_NCCL_EP is not 0")
        if str(compilers()) != os.environ["MAX_JOBS"]:  # noqa: F821
            raise SystemExit(f"make would have {compilers()} jobs, not {os.environ['MAX_JOBS']}")  # noqa: F821
    numbers = os.environ["NVTE_CUDA_ARCHS"].split(";")
    os.environ["TORCH_CUDA_ARCH_LIST"] = " ".join(f"{number[:-1]}.{number[-1]}" for number in numbers)
