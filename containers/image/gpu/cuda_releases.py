"""Whether the CUDA libraries in one process are of one major release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from containers.image.binaries.loader import Loaded, Process
from containers.image.copies.families import plain

_RUNTIME: Final = re.compile(r"libcudart\.so\.(?P<major>\d+)")
"""The soname of CUDA's runtime: of one major release, which all that pass its streams to each other share."""


def mismatched(process: Process) -> Iterator[tuple[Loaded, str, Loaded]]:
    """Yield each library for another major release than a runtime beside it, that release, and the runtime.

    A library that has its runtime in itself, as NCCL, loads and is not refused: it fails when it is called, or
    later (CUDA C++ Best Practices Guide 13, "CUDA Compatibility": a runtime is compatible within its major release).
    """
    runtimes = [(match[1], one) for one in process.objects if (match := _RUNTIME.match(plain(one.binary.soname)))]
    if runtimes:
        for library in process.objects:
            for major, runtime in runtimes:
                if library.binary.cuda and library.binary.cuda.partition(".")[0] != major:
                    yield library, major, runtime
