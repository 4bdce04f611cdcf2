"""The inspection of an image: what in it loads, what its GPU code runs on, and who owns its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oci.binaries import contents, loading
from oci.binaries.elf_file import AARCH64, I386, X86_64, Machine
from oci.binaries.loader import DEFAULT_LEVEL
from oci.binaries.loading import Loading
from oci.registry_image import Image
from stacks.errors import SlipwayError

_MACHINES: Final[Mapping[str, Machine]] = {"amd64": X86_64, "arm64": AARCH64, "386": I386}
"""Machines by the architecture of a platform (image-spec, config.md; Go's GOARCH)."""


@dataclass(frozen=True)
class Inspection:
    """What was found in an image."""

    image: Image
    files: int
    loading: Loading

    @property
    def faults(self) -> list[str]:
        """The faults, one line each."""
        return [str(fault) for fault in self.loading.faults]

    def as_json(self) -> dict[str, Any]:
        """Return the inspection as JSON."""
        return {
            "reference": self.image.reference,
            "digest": self.image.digest,
            "platform": self.image.platform,
            "faults": [fault._asdict() | {"users": list(fault.users)} for fault in self.loading.faults],
            "loader": {
                "loader": self.loading.loader,
                "resolved": self.loading.resolved,
                "notResolved": self.loading.not_resolved,
                "host": self.loading.host,
                "preloaded": self.loading.preloaded,
                "optional": self.loading.optional,
                "sonames": self.loading.sonames,
            },
        }


def inspect(image: Image, platform: str | None = None, level: str = DEFAULT_LEVEL) -> Inspection:
    """Read an image's layers and inspect them.

    Raises:
        SlipwayError: the image is for another platform, or a layer cannot be read.
    """
    if platform and image.platform != platform:
        raise SlipwayError(f"{image.reference}: an image for {image.platform}, not for {platform}")
    read = contents.read(image)
    machine = _MACHINES.get(image.platform.split("/")[1])
    if machine is None:  # of the most files, so that they are counted
        machines = Counter(binary.machine for binary in read.binaries.values() if binary.loaded)
        machine = machines.most_common(1)[0][0] if machines else X86_64
    return Inspection(image, len(read.binaries), loading.resolve(read, machine, level))
