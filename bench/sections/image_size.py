"""Section d: the ``local`` stack's image, against plain ``pip install`` on the same parent: its size and import."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from bench import torch_images
from bench.figures import Measurement, Target
from bench.setting import BenchSetting
from cli.startup.measurement import Settings, Start, measure
from containers.errors import SlipwayError
from containers.image.registry_image import fetch
from stacks.config.stack_file import read_stack
from stacks.config.torch import TorchConfig

TARGET: Final = Target("<", 1.00)
IMPORT: Final = Target("<=", 1.10)
CONTAINERS: Final = 6
"""Of each image. The first reads its files from the disk, and does not count."""
_SECONDS: Final = 600
_PEER: Final = "plain pip install"


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Build the image of ``make up`` and the plain one, and measure both compressed, unpacked and at their start."""
    torch = {"version": TorchConfig().version, **(read_stack("local").get("torch") or {})}
    [ours], [plain] = torch_images.build(setting, "size", [torch])
    compressed = [float(ours.compressed)], _PEER, [float(plain.compressed)]
    yield Measurement("d", f"compressed size, torch {torch['version']}", *compressed, unit="B", target=TARGET)
    unpacked = [float(ours.unpacked)], _PEER, [float(plain.unpacked)]
    yield Measurement("d", f"unpacked size, torch {torch['version']}", *unpacked, unit="B", target=TARGET)
    yield Measurement("d", f"build and push, torch {torch['version']}, cold", [ours.seconds], _PEER, [plain.seconds])
    starts = [Start.of(each.reference, partial(fetch, each.reference)) for each in (ours, plain)]
    with setting.engine.tidied(setting.registry.address):
        measure(starts, CONTAINERS, Settings("torch", gpu=False, seconds=_SECONDS))
    for phase, title in (("import", "import torch"), ("import_cpu", "import torch, CPU")):
        mine, theirs = (_seconds(each, phase) for each in starts)
        yield Measurement("d", title, mine, _PEER, theirs, target=IMPORT)


def _seconds(image: Start, phase: str) -> list[float]:
    if image.failed:
        raise SlipwayError(f"{image.reference}: {image.failed}")
    return [run[phase] for run in image.runs[1:]]
