"""Section f: the sizes of the torch family's images, and what of ``nccl`` is spared in ``base`` at equal versions.

They are built of the stand-ins of the upstreams that the tests have: the distribution's packages, Python and compilers
are real, NVIDIA's packages and PyTorch are a few kilobytes each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.bench_error import BenchError
from bench.figures import Row, Target, show
from bench.setting import Setting
from cli.text_table import aligned
from stacks.spec import Sibling
from tests.images import chain
from tests.images.world.upstreams import World
from toolchain.machine.steps import say, step

TARGET: Final = Target("<", 0.50)
CUDA: Final = "cu121"
_TITLES: Final = ("stack", "image", "layers", "its own", "compressed", "unpacked")


@dataclass(frozen=True)
class Size:
    """An image's layers, how many of them its parent in the stack has not, and its bytes as pulled and unpacked."""

    layers: int
    own: int
    compressed: int
    unpacked: int


def run(setting: Setting) -> Iterator[Row]:
    """Build both variants, list their images, and set the one's beside the other's."""
    stacks = base, nccl = f"base-{CUDA}", f"nccl-{CUDA}"
    with step("f: upstreams"):
        world = chain.world([(stack, {}) for stack in stacks])
    try:
        sizes = {stack: dict(_sizes(setting, stack, world)) for stack in stacks}
    finally:
        world.server.close()
    say("\n".join(aligned([_TITLES, *_listed(sizes)], {2, 3, 4, 5})))
    for image, ours in sizes[base].items():
        theirs = sizes[nccl][image]
        compressed = [float(ours.compressed)], nccl, [float(theirs.compressed)]
        yield Row("f", f"{image} of {base}, compressed", *compressed, unit="B", target=TARGET)
        unpacked = [float(ours.unpacked)], nccl, [float(theirs.unpacked)]
        yield Row("f", f"{image} of {base}, unpacked", *unpacked, unit="B", target=TARGET)


def _sizes(setting: Setting, stack: str, world: World) -> Iterator[tuple[str, Size]]:
    try:
        with step(f"f: {stack}, whole chain"):
            made = chain.built(stack, world)
    except AssertionError as error:
        raise BenchError(" | ".join(str(error).splitlines()[-3:])) from None
    try:
        for name, planned in made.planned.items():
            if planned.spec.product:
                continue
            parent = planned.spec.parents["BASE_IMAGE"]
            below = setting.engine.layers(made.names[parent.image]) if isinstance(parent, Sibling) else []
            layers = setting.engine.layers(made.names[name])
            with step(f"f: {stack}, pushing {name}"):
                reference = setting.engine.publish(made.names[name], f"{setting.registry.address}/{stack}/{name}")
            compressed = setting.registry.compressed(reference)
            yield (
                name,
                Size(len(layers), len(layers) - len(below), compressed, setting.engine.unpacked(reference)),
            )
    finally:
        chain.remove(made)


def _listed(sizes: dict[str, dict[str, Size]]) -> Iterator[tuple[str, ...]]:
    for stack, images in sizes.items():
        for name, size in images.items():
            bytes_of = (show(size.compressed, "B"), show(size.unpacked, "B"))
            yield stack, name, str(size.layers), str(size.own), *bytes_of
