import os

name, module, requires = "flash_attn", "flash_attn_2_cuda", ["torch", "einops"]
old = True  # names C++17 itself
nvcc = ["--threads", "4"]  # release 2.0.2; later ones ask NVCC_THREADS, or are silent about it
version = lambda: None


def gate():
    if os.environ.get("FLASH_ATTENTION_FORCE_BUILD") != "TRUE":
        raise SystemExit("FLASH_ATTENTION_FORCE_BUILD is not set: a wheel for another torch would be downloaded")
    # It compiles for what it knows, and says nothing of the rest.
    known = [number for number in os.environ["FLASH_ATTN_CUDA_ARCHS"].split(";") if number in ("80", "90", "100", "120")]
    os.environ["TORCH_CUDA_ARCH_LIST"] = " ".join(f"{number[:-1]}.{number[-1]}" for number in known)
    if not os.path.exists("csrc/cutlass/README.md"):
        raise SystemExit("the submodule csrc/cutlass is not there")
