"""The NVIDIA driver that an image needs, by the CUDA libraries in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oci.binaries.contents import Contents
from oci.binaries.loading import Fault
from stacks.versions.cuda_toolkit import least_driver
from stacks.versions.tables import line, older, order, table

_RUNTIME: Final = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt)\.so\.(?P<major>\d+)")
"""Sonames with the toolkit's major version."""
_FULL: Final = re.compile(r"libcudart\.so\.(?P<version>\d+\.\d+)\.\d+")
_PACKAGE: Final = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
_FORWARD: Final = re.compile(r"(?:^|/)compat(?:/.*)?/libcuda\.so\.1$")


@dataclass
class Driver:
    """The least driver: of the newest major version of CUDA in the image, which ``library`` is a file of.

    ``cuda`` is its release line, if a file or package names it, and ``belongs`` the driver that came with it: PTX of
    that toolkit needs it. ``forward`` is a compatibility library, which replaces an older driver's.
    """

    least: str
    library: str
    major: str
    cuda: str = ""
    belongs: str = ""
    forward: str = ""

    def faults(self, driver: str) -> list[Fault]:
        """Return the fault of a driver that is too old."""
        if self.forward or not older(driver, self.least):
            return []
        return [
            Fault("driver", self.library, f"misses driver {self.least}", f"{driver} is too old for CUDA {self.major}")
        ]


def needed(contents: Contents) -> Driver | None:
    """Return the driver that an image needs; None without CUDA libraries, or with those of an unknown version."""
    runtimes = [
        (int(match["major"]), f"/{path}")
        for path, binary in sorted(contents.binaries.items(), reverse=True)
        if binary.loaded and (match := _RUNTIME.fullmatch(binary.soname))
    ]
    if not runtimes:
        return None
    number, library = max(runtimes)
    least = least_driver(str(number))
    if least is None:
        return None
    lines = sorted({one for one in _lines(contents) if order(one)[0] == number}, key=order)
    cuda = lines[-1] if lines else ""
    releases = table("cuda")["release"]
    of_line = [release["driver"] for version, release in releases.items() if line(version) == cuda]
    forward = next((f"/{path}" for path in sorted(contents.binaries) if _FORWARD.search(path)), "")
    return Driver(least, library, str(number), cuda, min(of_line, key=order, default=""), forward)


def _lines(contents: Contents) -> list[str]:
    """Return the release lines of CUDA that file names and packages of Python name."""
    lines = [match["version"] for path in contents.binaries if (match := _FULL.fullmatch(path.rpartition("/")[2]))]
    owners = (owned.owner for owned in contents.owned.values())
    return [*lines, *(line(owner.version) for owner in owners if _PACKAGE.fullmatch(owner.name))]
