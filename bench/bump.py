"""Section c: what a patch release of torch costs to push, against a Dockerfile with a single ``RUN pip install``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import torch
from bench.figures import Row, Target
from bench.setting import Setting

TARGET: Final = Target("<=", 0.40)
_BESIDE: Final = "one RUN pip install"


def run(setting: Setting) -> Iterator[Row]:
    """Build and push one release of torch, then the next patch release, and measure the second."""
    older, newer = torch.patch_pair(torch.known_releases())
    with setting.engine.tidied(setting.registry.address):
        pair = torch.Pair(setting, "bump")
        first = pair.build({"version": older})
        second = pair.build({"version": newer})
    for what, (ours, plain), target in (
        (f"torch {older}, cold", first, None),
        (f"torch {older} -> {newer}", second, TARGET),
    ):
        yield Row("c", f"bytes pushed, {what}", [ours.received], _BESIDE, [plain.received], unit="B", target=target)
        yield Row("c", f"build and push, {what}", [ours.seconds], _BESIDE, [plain.seconds])
