"""Section c: the push of a patch release of torch, against a Dockerfile with a single ``RUN pip install``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import torch_images
from bench.figures import Measurement, Target
from bench.setting import BenchSetting

TARGET: Final = Target("<=", 0.40)
_PEER: Final = "one RUN pip install"


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Build and push one release of torch, then the next patch release, and measure both."""
    older, newer = torch_images.patch_pair(torch_images.known_releases())
    ours, plain = torch_images.build(setting, "bump", [{"version": older}, {"version": newer}])
    for number, title, target in ((0, f"torch {older}, cold", None), (1, f"torch {older} -> {newer}", TARGET)):
        first, second = ours[number], plain[number]
        received = [float(first.received)], _PEER, [float(second.received)]
        yield Measurement("c", f"bytes pushed, {title}", *received, unit="B", target=target)
        yield Measurement("c", f"build and push, {title}", [first.seconds], _PEER, [second.seconds])
