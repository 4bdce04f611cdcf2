"""Section d: the size of the ``local`` stack's image, against plain ``pip install`` of the same on the same parent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import torch
from bench.figures import Row, Target
from bench.setting import Setting
from stacks.source import read_stack

TARGET: Final = Target("<", 1.00)
_BESIDE: Final = "plain pip install"


def run(setting: Setting) -> Iterator[Row]:
    """Build the image that ``make up`` builds, and the plain one, and measure both as pulled and as unpacked."""
    with setting.engine.tidied(setting.registry.address):
        pair = torch.Pair(setting, "size")
        built = pair.build(read_stack("local").get("torch", {}))
        pulled = [[setting.registry.compressed(image.reference)] for image in built]
        unpacked = [[setting.engine.unpacked(image.reference)] for image in built]
    yield Row("d", "compressed size", pulled[0], _BESIDE, pulled[1], unit="B", target=TARGET)
    yield Row("d", "unpacked size", unpacked[0], _BESIDE, unpacked[1], unit="B", target=TARGET)
    yield Row("d", "build and push, cold", [built[0].seconds], _BESIDE, [built[1].seconds])
