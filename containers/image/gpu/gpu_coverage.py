"""Which GPUs the machine code and PTX in an image's libraries run on.

Source: CUDA C++ Programming Guide 13, "Binary Compatibility", "PTX Compatibility" and "Feature Set Compiler Targets".
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.binaries.loading import Fault, exceptions
from containers.image.copies.families import plain
from containers.image.gpu.gpu_code import GpuCode

_CAPABILITY: Final = re.compile(r"(\d+)\.(\d)")
"""The number in a compute capability as torch writes it, such as 9.0a+PTX."""


@dataclass
class Coverage:
    """The GPU code of each library by path, and what lacks code for each GPU asked for.

    ``without`` and ``compiled`` are by GPU: libraries with neither machine code nor PTX for it, and those with PTX
    only, which the driver compiles at the first use.
    """

    libraries: dict[str, tuple[GpuCode, ...]] = field(default_factory=dict)
    without: dict[str, list[str]] = field(default_factory=dict)
    compiled: dict[str, list[str]] = field(default_factory=dict)

    @property
    def codes(self) -> list[GpuCode]:
        """All code, each architecture once: machine code, then PTX."""
        codes = {code for codes in self.libraries.values() for code in codes}
        return sorted(codes, key=lambda code: (code.kind != "sm", code))

    def faults(self) -> Iterator[Fault]:
        """Yield a fault for each library without code for a GPU."""
        for gpu, paths in self.without.items():
            for path in paths:
                has = ", ".join(map(str, self.libraries[path]))
                yield Fault("gpu", path, f"missing code for {gpu}", f"it has {has}")


def cover(contents: Contents, gpus: Mapping[str, str]) -> Coverage:
    """Return the GPU code in an image; ``gpus`` maps names to compute capabilities such as ``9.0``."""
    binaries = sorted(contents.binaries.items())
    hides = exceptions().hides_gpu_code
    read = {
        f"/{path}": binary.gpu_code for path, binary in binaries if binary.gpu_code and not hides(plain(binary.soname))
    }
    coverage = Coverage(read)
    for name, capability in gpus.items():
        number = int(capability.replace(".", ""))
        label = gpu_label(name, capability)
        for path, codes in coverage.libraries.items():
            kinds = {code.kind for code in codes if runs(code, number)}
            if not kinds:
                coverage.without.setdefault(label, []).append(path)
            elif "sm" not in kinds:
                coverage.compiled.setdefault(label, []).append(path)
    return coverage


def lacking(contents: Contents, compiled: Mapping[str, str]) -> Iterator[Fault]:
    """Yield a fault for each library without code for a compute capability that it was to be compiled for.

    ``compiled`` has these, ``8.0 9.0a+PTX``, by the name of a Python package, or by a pattern of paths. The first one
    that has a library counts.
    """
    packages = {
        f"/{file}": owned.owner.name
        for owned in contents.owned.values()
        if owned.owner.manager == "pip" and owned.owner.name in compiled
        for file in owned.files
    }
    patterns = [pattern for pattern in compiled if pattern.startswith("/")]
    for path, codes in cover(contents, {}).libraries.items():
        name = packages.get(path) or next((one for one in patterns if fnmatch.fnmatchcase(path, one)), "")
        for arch in compiled.get(name, "").replace("+PTX", "").split():
            match = _CAPABILITY.match(arch)
            capability = int("".join(match.groups())) if match else 0
            if not any(runs(code, capability) for code in codes) and not exceptions().leaves_out(path, capability):
                reason = f"it has {', '.join(map(str, codes))}; {name} is compiled for {compiled[name]}"
                yield Fault("gpu", path, f"missing code for {arch}", reason, names=(arch,))


def gpu_label(name: str, capability: str) -> str:
    """Return what a report calls a GPU."""
    return name if name == capability else f"{name} ({capability})"


def runs(code: GpuCode, capability: int) -> bool:
    """Return whether code runs on a GPU, of capability 90 for 9.0."""
    if code.variant == "a":
        return code.arch == capability
    same_family = code.arch // 10 == capability // 10
    return code.arch <= capability and (same_family or (code.kind == "ptx" and not code.variant))


def listed(codes: Iterable[GpuCode]) -> str:
    """Return the names of code, separated by spaces."""
    return " ".join(map(str, codes))
