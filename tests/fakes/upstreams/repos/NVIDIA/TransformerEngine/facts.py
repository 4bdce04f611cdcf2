import os

name, module, requires = "transformer_engine", "transformer_engine_torch", ["torch"]
version = lambda: None


def gate():
    if os.environ.get("NVTE_FRAMEWORK") != "pytorch":
        raise SystemExit("NVTE_FRAMEWORK is not pytorch")
    numbers = os.environ["NVTE_CUDA_ARCHS"].split(";")
    os.environ["TORCH_CUDA_ARCH_LIST"] = " ".join(f"{number[:-1]}.{number[-1]}" for number in numbers)
