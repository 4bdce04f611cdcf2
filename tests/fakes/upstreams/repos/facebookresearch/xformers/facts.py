import os

name, module = "xformers", "xformers._C"
old = True  # names C++17 itself
nvcc = ["--threads", "4"]
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    if os.environ.get("FORCE_CUDA") != "1":
        raise SystemExit("no GPU in sight, and FORCE_CUDA is not set")
