# hopper/setup.py of Dao-AILab/flash-attention at 15270e66: :115 writes the configuration, :626 names the extension, :720 the modules.
import os
import pathlib
import urllib.request

name, module, requires = "flash_attn_3", "flash_attn_3._C", ["torch", "einops"]
modules = ["flash_attn_interface", "flash_attn_config"]
libraries = ["cuda"]
old = True  # names C++17 itself
nvcc = ["--threads", os.environ.get("NVCC_THREADS") or "2"]
version = lambda: "3.0.0"


def gate():
    pathlib.Path("flash_attn_config.py").write_text("CONFIG = {}\n")
    # As the real one fetches its compiler.
    urllib.request.urlopen("https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/Packages").close()
    if os.environ["TORCH_CUDA_ARCH_LIST"] != "9.0":
        raise SystemExit("FlashAttention 3 is for 9.0 alone")
    if os.environ.get("FLASH_ATTENTION_FORCE_BUILD") != "TRUE":
        raise SystemExit("FLASH_ATTENTION_FORCE_BUILD is not set: a wheel for another torch would be downloaded")
