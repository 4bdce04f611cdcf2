import os

name, module = "torchaudio", "torchaudio._C"
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    if os.environ.get("USE_CUDA") != "1":
        raise SystemExit("no GPU in sight, and USE_CUDA is not set")
