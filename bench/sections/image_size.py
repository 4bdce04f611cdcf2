"""Section d: the size of the ``local`` stack's image, against plain ``pip install`` on the same parent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import torch_images
from bench.figures import Measurement, Target
from bench.setting import BenchSetting
from stacks.config.stack_file import read_stack
from stacks.config.torch import TorchConfig

TARGET: Final = Target("<", 1.00)
_PEER: Final = "plain pip install"


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Build the image of ``make up`` and the plain one, and measure both compressed and unpacked."""
    torch = {"version": TorchConfig().version, **(read_stack("local").get("torch") or {})}
    [ours], [plain] = torch_images.build(setting, "size", [torch])
    compressed = [float(ours.compressed)], _PEER, [float(plain.compressed)]
    yield Measurement("d", f"compressed size, torch {torch['version']}", *compressed, unit="B", target=TARGET)
    unpacked = [float(ours.unpacked)], _PEER, [float(plain.unpacked)]
    yield Measurement("d", f"unpacked size, torch {torch['version']}", *unpacked, unit="B", target=TARGET)
    yield Measurement("d", f"build and push, torch {torch['version']}, cold", [ours.seconds], _PEER, [plain.seconds])
