"""A stand-in of torch that says of a compiled step what the variable STUB_COMPILE names, or takes it.

It takes it only with the caches of the variable STUB_CACHES, a beginning of their folder, and if that is empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TORCH: Final = """
import os

__version__ = "2.11.0"
FAULT = os.environ.get("STUB_COMPILE", "")


class Tensor:
    def sum(self):
        return self

    __matmul__ = lambda self, _: self
    item = lambda self: 1.0


class cuda:
    is_available = staticmethod(lambda: FAULT != "no GPU")
    synchronize = staticmethod(lambda: None)
    get_device_name = staticmethod(lambda _: "NVIDIA H100 80GB HBM3")


class compiler:
    if FAULT != "old":
        is_compiling = staticmethod(lambda: compiling)


class nn:
    class functional:
        gelu = staticmethod(lambda value: value)


def ones(*_, **__):
    return Tensor()


def compile(function):
    def run(value):
        global compiling
        folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        if not folder.startswith(os.environ.get("STUB_CACHES", "")) or os.path.isdir(folder):
            raise ValueError("not these caches: " + folder)
        if FAULT == "no compiler":
            raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")
        if FAULT == "crash":
            os.abort()
        compiling = FAULT != "off"
        return function(value)

    return run


zeros = ones
"""


def write(folder: Path) -> Path:
    """Write the stand-in, and return the folder that has it."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(_TORCH)
    return folder
