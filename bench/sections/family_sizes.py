"""Section f: the sizes of the torch family's published images, ``base`` against ``nccl`` at equal versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bench.figures import Measurement, Target, show
from bench.setting import BenchSetting
from cli.diff import stack_diff
from cli.text_table import aligned
from containers.image.registry_image import Image, fetch
from containers.registry.logins import stack_login
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.spec import Sibling
from toolchain.machine.steps import say, step

TARGET: Final = Target("<", 0.50)
STACKS: Final = ("base-cu121", "nccl-cu121")
_TITLES: Final = ("stack", "image", "layers", "new", "compressed", "unpacked")


@dataclass(frozen=True)
class Size:
    """An image's number of layers, how many of them its parent lacks, and its size in bytes, as pulled and unpacked."""

    layers: int
    new: int
    compressed: int
    unpacked: int


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """List the images that both stacks last published, and compare them; yield nothing if one has published none."""
    images = {stack: published(stack) for stack in STACKS}
    if missing := [stack for stack in STACKS if not images[stack]]:
        say(f"  f: left out: {' and '.join(missing)} not published; run `make up STACK=...` for each of them first")
        return
    base, nccl = ({name: _size(setting, stack, name, images[stack]) for name in images[stack]} for stack in STACKS)
    say("\n".join(aligned([_TITLES, *_lines(STACKS[0], base), *_lines(STACKS[1], nccl)], {2, 3, 4, 5})))
    for name, ours in base.items():
        theirs = nccl[name]
        compressed = [float(ours.compressed)], STACKS[1], [float(theirs.compressed)]
        yield Measurement("f", f"{name} of {STACKS[0]}, compressed", *compressed, unit="B", target=TARGET)
        unpacked = [float(ours.unpacked)], STACKS[1], [float(theirs.unpacked)]
        yield Measurement("f", f"{name} of {STACKS[0]}, unpacked", *unpacked, unit="B", target=TARGET)


def published(stack: str) -> dict[str, tuple[Image, Image | None]]:
    """Return the images that a stack last published, each with its parent if that is one of them, by name.

    Raises:
        SlipwayError: Pulumi or the registry fails.
    """
    built = stack_diff.outputs(stack, ROOT).get("images", {})
    config, specs = plan.resolve(stack)
    login = stack_login.configured(config.registry)
    images = {name: fetch(outputs["ref"], login) for name, outputs in built.items()}
    parents = {spec.name: spec.parents.get("BASE_IMAGE") for spec in specs}
    siblings = {name: parent.image for name, parent in parents.items() if isinstance(parent, Sibling)}
    return {name: (image, images.get(siblings.get(name, ""))) for name, image in images.items()}


def _size(setting: BenchSetting, stack: str, name: str, images: Mapping[str, tuple[Image, Image | None]]) -> Size:
    image, parent = images[name]
    new = len(image.layers) - (len(parent.layers) if parent else 0)
    setting.engine.check_space(4 * image.size)
    with step(f"f: {stack}, pulling {name}"), setting.engine.pulled(image.reference):
        return Size(len(image.layers), new, image.size, setting.engine.unpacked(image.reference))


def _lines(stack: str, sizes: Mapping[str, Size]) -> Iterator[tuple[str, ...]]:
    for name, size in sizes.items():
        yield stack, name, str(size.layers), str(size.new), show(size.compressed, "B"), show(size.unpacked, "B")
