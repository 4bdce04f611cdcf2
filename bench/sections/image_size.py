"""Section d: the size of the ``local`` stack's image, against plain ``pip install`` of the same on the same parent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import torch_images
from bench.figures import Row, Target
from bench.setting import Setting
from stacks.config.stack_file import read_stack
from stacks.config.torch import Torch

TARGET: Final = Target("<", 1.00)
_BESIDE: Final = "plain pip install"


def run(setting: Setting) -> Iterator[Row]:
    """Build the image that ``make up`` builds, and the plain one, and measure both as pulled and as unpacked."""
    asked = {"version": Torch().version, **(read_stack("local").get("torch") or {})}
    [ours], [plain] = torch_images.build(setting, "size", [asked])
    compressed = [float(ours.compressed)], _BESIDE, [float(plain.compressed)]
    yield Row("d", f"compressed size, torch {asked['version']}", *compressed, unit="B", target=TARGET)
    unpacked = [float(ours.unpacked)], _BESIDE, [float(plain.unpacked)]
    yield Row("d", f"unpacked size, torch {asked['version']}", *unpacked, unit="B", target=TARGET)
    yield Row("d", f"build and push, torch {asked['version']}, cold", [ours.seconds], _BESIDE, [plain.seconds])
