"""A stand-in of torch for GPU checks that are run without a GPU: numbers that add up, and a log as NCCL writes it.

The text of the variable STUB_LOG is the log. It goes where NCCL_DEBUG_FILE says when the process group begins, with the
host and the number of the process in place of %h and %p (NVIDIA/nccl v2.28.9-1, src/debug.cc:238-241).
The variable STUB_WRONG names the operation whose results are wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TORCH: Final = """
float32 = bfloat16 = float64 = None
__version__ = "2.11.0"


class version:
    cuda = "13.0"


class cuda:
    set_device = synchronize = staticmethod(lambda *_: None)


class Tensor:
    nbytes = 1 << 20

    def __init__(self, factor=1):
        self.factor = factor

    def itself(self, *_):
        return self

    remainder_ = __sub__ = abs = max = itself

    def item(self):
        return 7

    def __mul__(self, factor):
        return Tensor(self.factor * factor)

    def repeat(self, _):
        return Tensor(self.factor)


def arange(*_, **__):
    return Tensor()


def cat(tensors):
    return Tensor("gathered")


def equal(one, other):
    return one.factor == other.factor
"""
_DISTRIBUTED: Final = """
import os
from pathlib import Path

destroy_process_group = barrier = lambda: None


def init_process_group(_):
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", str(os.getpid()))
    Path(name).write_text(os.environ["STUB_LOG"])


def output(name, tensor, factor):
    tensor.factor = "wrong" if os.environ.get("STUB_WRONG") == name else factor


def all_reduce(numbers, **_):
    world = int(os.environ["WORLD_SIZE"])
    output("all-reduce", numbers, world * (world + 1) // 2)


def broadcast(numbers, _):
    output("broadcast", numbers, 1)


def all_gather_into_tensor(numbers, _):
    output("all-gather", numbers, "gathered")


def reduce_scatter_tensor(part, _):
    world = int(os.environ["WORLD_SIZE"])
    output("reduce-scatter", part, world * (world + 1) // 2)
"""


def write(folder: Path) -> Path:
    """Write the package below a folder, for PYTHONPATH; return the folder."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_TORCH)
    (package / "distributed.py").write_text(_DISTRIBUTED)
    return folder
