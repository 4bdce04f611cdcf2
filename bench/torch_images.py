"""The images of sections c and d: Slipway's torch image, and one ``RUN pip install`` on the same parent."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import program
from bench.program import Program
from bench.setting import BenchSetting
from containers.errors import SlipwayError
from containers.image.gpu.release_order import line, order
from containers.image.registry_image import fetch
from stacks import plan
from stacks.versions.tables import table
from toolchain.machine.steps import step

_NEEDED_BYTES: Final = 25_000_000_000
"""Disk space for two releases of torch in the engine and the registry, with wheels and pip's cache."""

Torch = Mapping[str, Any]
"""A stack's ``slipway:torch``."""


@dataclass(frozen=True)
class Built:
    """A built and pushed image: its reference, the seconds that took, and the bytes that the registry received.

    ``compressed`` is its size as pulled, ``unpacked`` that of its files, in bytes.
    """

    reference: str
    seconds: float
    received: int
    compressed: int
    unpacked: int


def build(setting: BenchSetting, name: str, torches: Sequence[Torch]) -> list[list[Built]]:
    """Build and push each torch with Slipway, then each with one ``RUN pip install``; return both lists.

    Both use a parent that no build cache has, and start with the same pip cache: the images and the build cache of the
    first are removed before the second.
    """
    setting.engine.check_space(_NEEDED_BYTES)
    registry = f"{setting.registry.address}/{name}"
    with step(f"{name}: a new parent image"):
        parent = setting.engine.new_parent(f"{registry}/parent:{setting.mark}", f"{name}-{setting.mark}")
    results = []
    for write in (_slipway, _plain):
        with setting.engine.tidied(setting.registry.address):
            title, built, configure = write(setting.scratch / name, registry, parent)
            results.append(list(_each(setting, f"{name}: {title}", built, configure, torches)))
    return results


_Written = tuple[str, Program, Callable[[Torch], None]]
"""A title, a program, and a function that configures its torch."""


def _slipway(folder: Path, registry: str, parent: str) -> _Written:
    slipway = program.slipway(folder / "slipway", registry, _config(parent, {}))

    def configure(torch: Torch) -> None:
        program.configure(slipway, registry, _config(parent, torch))

    return "Slipway's image", slipway, configure


def _plain(folder: Path, registry: str, parent: str) -> _Written:
    plain = program.bare(folder / "plain", registry, {})
    shutil.copytree(program.PROGRAMS / "plain", plain.dockerfiles / "plain")

    def configure(torch: Torch) -> None:
        _, specs = plan.specs(_config(parent, torch), "bench")  # the versions that Slipway would install
        program.configure_bare(plain, registry, {"plain": {"BASE_IMAGE": parent, **specs[0].args}})

    return "one RUN pip install", plain, configure


def _config(parent: str, torch: Torch) -> dict[str, Any]:
    return {"flavor": "local", "base": parent, "torch": dict(torch)}


def _each(
    setting: BenchSetting, title: str, program_: Program, configure: Callable[[Torch], None], torches: Sequence[Torch]
) -> Iterator[Built]:
    program_.begin()
    for torch in torches:
        configure(torch)
        before = setting.registry.stored()
        with step(f"{title}, torch {torch['version']}"):
            seconds = program_.up().seconds
        [output] = program_.outputs()["images"].values()
        reference = output["ref"] if isinstance(output, dict) else output
        yield Built(
            reference,
            seconds,
            setting.registry.stored() - before,
            fetch(reference).size,
            setting.engine.unpacked(reference),
        )


def patch_pair(releases: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the newest patch release of torch with the requirements of its predecessor, after that predecessor.

    Only then does a single layer change. ``releases`` are the rows of a table such as ``versions/torch.toml``.

    Raises:
        SlipwayError: there is no such pair.
    """
    newest_first = sorted(releases, key=order, reverse=True)
    for newer, older in itertools.pairwise(newest_first):
        if line(newer) == line(older) and releases[newer] == releases[older]:
            return older, newer
    raise SlipwayError("no two patch releases of torch in stacks/versions/torch.toml want the same CUDA packages")


def known_releases() -> Mapping[str, Mapping[str, Any]]:
    """Return the table's rows of torch."""
    rows: Mapping[str, Mapping[str, Any]] = table("torch")["torch"]
    return rows
