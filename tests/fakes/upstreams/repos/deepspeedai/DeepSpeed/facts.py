import os

name, requires = "deepspeed", ["torch", "numpy", "psutil", "py-cpuinfo"]
module = "deepspeed_fused_adam"
nvcc = [f"--threads={os.environ.get('DS_NVCC_THREADS', 8)}"]
version = lambda: None


def gate():
    if os.environ.get("DS_ACCELERATOR") != "cuda":
        raise SystemExit("no GPU in sight, and DS_ACCELERATOR is not cuda: no operator of CUDA would be built")
    if os.environ.get("DS_BUILD_FUSED_ADAM") != "1":
        raise SystemExit("DS_BUILD_FUSED_ADAM is not set: operators would be compiled when they are first used")
    import cpuinfo  # noqa: F401
    import psutil  # noqa: F401
