import os

name, module, cuda, submodules = "torchtext", "torchtext._torchtext", False, True
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    pass
