"""The NVIDIA driver that an image needs, by the CUDA libraries in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from containers.image.binaries.contents import Contents
from containers.image.binaries.loading import Fault
from containers.image.copies.families import former_names
from containers.image.gpu.node_drivers import listed
from containers.image.gpu.release_order import line, older, order

_RUNTIME: Final = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt)\.so\.(?P<major>\d+)")
"""Sonames with the toolkit's major version."""
_FULL: Final = re.compile(r"libcudart\.so\.(?P<version>\d+\.\d+)\.\d+")
_PACKAGE: Final = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
_FORWARD: Final = re.compile(r"(?:^|/)compat(?:/.*)?/libcuda\.so\.1$")


class CudaDrivers(Protocol):
    """NVIDIA's documented drivers for releases of CUDA, and the label by which an image names its own."""

    @property
    def DRIVER_LABEL(self) -> str:  # noqa: N802 - a constant of the module that implements it
        """The name of an image's label with the least driver."""

    @property
    def least_driver(self) -> Callable[[str], str | None]:
        """The function that returns the oldest driver for a major version of CUDA; None for an unknown one."""

    @property
    def line_driver(self) -> Callable[[str], str | None]:
        """The function for the driver that came with a release line; None for an unknown one."""


@dataclass
class Driver:
    """The least driver: of the newest major version of CUDA in the image, which ``library`` is a file of.

    ``cuda`` is its release line, if a file or package names it, and ``belongs`` the driver that came with it: PTX of
    that toolkit needs it. ``forward`` is a compatibility library, which replaces an older driver's. ``labelled`` is the
    driver that the image's own ``label`` names.
    """

    least: str
    library: str
    major: str
    cuda: str = ""
    belongs: str = ""
    forward: str = ""
    labelled: str = ""
    label: str = ""

    def faults(self, driver: str, nodes: Mapping[str, Sequence[str]] | None = None) -> list[Fault]:
        """Return the faults of drivers that are too old: of a host, of ``nodes`` by driver, and of the image's label.

        ``driver`` is empty for no host.
        """
        reasons = []
        if driver and not self.forward and older(driver, self.least):
            reasons.append(f"{driver} is too old for CUDA {self.major}")
        for one, names in (nodes or {}).items():
            if not self.forward and older(one, self.least):
                reasons.append(f"{one} of {listed(names)} is too old for CUDA {self.major}")
        if self.labelled and older(self.labelled, self.least):
            reasons.append(f"the image's label {self.label} is {self.labelled}, too old for CUDA {self.major}")
        return [Fault("driver", self.library, f"missing driver {self.least}", reason) for reason in reasons]


def needed(contents: Contents, drivers: CudaDrivers) -> Driver | None:
    """Return the driver that an image needs; None without CUDA libraries, or with those of an unknown version."""
    runtimes = [
        (int(match["major"]), f"/{path}")
        for path, binary in sorted(contents.binaries.items(), reverse=True)
        if binary.loaded and binary.soname.startswith("lib")
        for name in former_names(binary.soname)
        if (match := _RUNTIME.fullmatch(name))
    ]
    if not runtimes:
        return None
    number, library = max(runtimes)
    least = drivers.least_driver(str(number))
    if least is None:
        return None
    lines = sorted({one for one in _lines(contents) if order(one)[0] == number}, key=order)
    cuda = lines[-1] if lines else ""
    forward = next((f"/{path}" for path in sorted(contents.binaries) if _FORWARD.search(path)), "")
    label = drivers.DRIVER_LABEL
    return Driver(
        least=least,
        library=library,
        major=str(number),
        cuda=cuda,
        belongs=drivers.line_driver(cuda) or "",
        forward=forward,
        labelled=contents.labels.get(label, ""),
        label=label,
    )


def _lines(contents: Contents) -> list[str]:
    """Return the release lines of CUDA that file names and packages of Python name."""
    lines = [match["version"] for path in contents.binaries if (match := _FULL.fullmatch(posixpath.basename(path)))]
    owners = (owned.owner for owned in contents.owned.values())
    return [*lines, *(line(owner.version) for owner in owners if _PACKAGE.fullmatch(owner.name))]
