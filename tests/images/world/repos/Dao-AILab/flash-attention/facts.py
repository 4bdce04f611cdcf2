import os

name, module, requires = "flash_attn", "flash_attn_2_cuda", ["torch", "einops"]
version = lambda: None


def gate():
    if os.environ.get("FLASH_ATTENTION_FORCE_BUILD") != "TRUE":
        raise SystemExit("FLASH_ATTENTION_FORCE_BUILD is not set: a wheel for another torch would be downloaded")
    if any(int(number) < 80 for number in os.environ["FLASH_ATTN_CUDA_ARCHS"].split(";")):
        raise SystemExit("FlashAttention has no code for what is older than 8.0")
    if not os.path.exists("csrc/cutlass/README.md"):
        raise SystemExit("the submodule csrc/cutlass is not there")
