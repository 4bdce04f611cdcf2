import os

name, module, cuda = "torchtext", "torchtext._torchtext", False
version = lambda: os.environ.get("BUILD_VERSION")


def gate():
    pass
