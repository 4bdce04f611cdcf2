"""What a node must pull of an image, in layers, bytes, and seconds at one rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

RATE: Final = 125_000_000
"""Bytes a second at which a node is taken to pull: 1 Gbit/s. What it takes to unpack comes on top."""
RATE_NAME: Final = f"{RATE * 8 / 1e9:g} Gbit/s"


def size(value: float) -> str:
    """Format bytes in decimal units, as registries do: ``1.23 GB``, ``45.6 MB``."""
    for name, unit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}" if abs(value) < 100 * unit else f"{value / unit:.0f} {name}"
    return f"{value:.0f} B"


def kept(layers: Mapping[str, int], there: Iterable[str]) -> dict[str, int]:
    """Return the ``layers`` that a node need not pull that has ``there``: from the lowest up to the first other one.

    A node has layers unpacked, each on those below it: Docker (moby 0173da3f, distribution/xfer/download.go:
    `missingLayer`), and containerd where it discards what it has unpacked, as on EKS (awslabs/amazon-eks-ami e48b98ad,
    nodeadm/internal/containerd/config.template.toml: `discard_unpacked_layers`).
    """
    pairs = takewhile(lambda pair: pair[0][0] == pair[1], zip(layers.items(), there, strict=False))
    return {layer: count for (layer, count), _ in pairs}


@dataclass(frozen=True)
class NodePull:
    """What a node must pull: the number of ``layers``, and ``size`` in bytes with the image's configuration."""

    layers: int
    size: int

    @classmethod
    def of(cls, layers: Mapping[str, int], there: Mapping[str, int], config: int = 0) -> NodePull:
        """Return the pull of ``layers``, bytes by digest, on a node that has ``there``; each the lowest first."""
        stay = kept(layers, there)
        return cls(len(layers) - len(stay), sum(layers.values()) - sum(stay.values()) + config)

    @property
    def seconds(self) -> float:
        """The seconds that it takes at :data:`RATE`."""
        return self.size / RATE

    def __str__(self) -> str:
        return f"{self.layers} layer{'' if self.layers == 1 else 's'}, {size(self.size)}, {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, with its rate in bytes a second."""
        return {**vars(self), "seconds": round(self.seconds, 1), "rate": RATE}
