"""What sections c and d build: Slipway's torch image, and one ``RUN pip install`` on the same parent."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import program
from bench.bench_error import BenchError
from bench.program import Program
from bench.setting import Setting
from stacks import plan
from stacks.versions.tables import line, order, table
from toolchain.machine.steps import step

_NEEDED_BYTES: Final = 25_000_000_000
"""Two releases of torch built by Slipway in the engine, with their wheels and pip's cache, and pushed."""

Torch = Mapping[str, Any]
"""A stack's ``slipway:torch``."""


@dataclass(frozen=True)
class Built:
    """An image that was built and pushed: how long that took, how many bytes the registry has more of since.

    ``compressed`` are the bytes that a pull of it would fetch, ``unpacked`` those of its files.
    """

    seconds: float
    received: int
    compressed: int
    unpacked: int


def build(setting: Setting, name: str, torches: Sequence[Torch]) -> list[list[Built]]:
    """Build and push each torch in turn, all by Slipway, then all by one ``RUN pip install``; return both lists.

    Both stand on a parent that no build cache knows, and begin with the same pip cache: what the first has left in
    the engine is removed before the second begins.
    """
    setting.engine.check_space(_NEEDED_BYTES)
    registry = f"{setting.registry.address}/{name}"
    with step(f"{name}: a parent image that no cache knows"):
        parent = setting.engine.new_parent(f"{registry}/parent:{setting.mark}", f"{name}-{setting.mark}")
    results = []
    for lay in (_slipway, _plain):
        with setting.engine.tidied(setting.registry.address):
            title, made, ask = lay(setting.scratch / name, registry, parent)
            results.append(list(_each(setting, f"{name}: {title}", made, ask, torches)))
    return results


_Laid = tuple[str, Program, Callable[[Torch], None]]
"""What it is, the program, and how it is told which torch to build."""


def _slipway(folder: Path, registry: str, parent: str) -> _Laid:
    made = program.slipway(folder / "slipway", registry, _config(parent, {}))

    def ask(torch: Torch) -> None:
        program.configure(made, registry, _config(parent, torch))

    return "Slipway's image", made, ask


def _plain(folder: Path, registry: str, parent: str) -> _Laid:
    made = program.bare(folder / "plain", registry, {})
    shutil.copytree(program.PROGRAMS / "plain", made.dockerfiles / "plain")

    def ask(torch: Torch) -> None:
        _, specs = plan.specs(_config(parent, torch), "bench")  # the versions that Slipway would install
        program.ask(made, registry, {"plain": {"BASE_IMAGE": parent, **specs[0].args}})

    return "one RUN pip install", made, ask


def _config(parent: str, torch: Torch) -> dict[str, Any]:
    return {"flavor": "local", "base": parent, "torch": dict(torch)}


def _each(
    setting: Setting, title: str, made: Program, ask: Callable[[Torch], None], torches: Sequence[Torch]
) -> Iterator[Built]:
    made.begin()
    for torch in torches:
        ask(torch)
        before = setting.registry.stored()
        with step(f"{title}, torch {torch['version']}"):
            seconds = made.up().seconds
        [output] = made.outputs()["images"].values()
        reference = output["ref"] if isinstance(output, dict) else output
        yield Built(
            seconds,
            setting.registry.stored() - before,
            setting.registry.compressed(reference),
            setting.engine.unpacked(reference),
        )


def patch_pair(releases: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the newest patch release of torch, after the release before it, that wants the same of all it needs.

    Only then does a single layer change. ``releases`` are the rows of a table such as ``versions/torch.toml``.

    Raises:
        BenchError: there is no such pair.
    """
    newest_first = sorted(releases, key=order, reverse=True)
    for newer, older in itertools.pairwise(newest_first):
        if line(newer) == line(older) and releases[newer] == releases[older]:
            return older, newer
    raise BenchError("no two patch releases of torch in stacks/versions/torch.toml want the same CUDA packages")


def known_releases() -> Mapping[str, Mapping[str, Any]]:
    """Return the table's rows of torch."""
    rows: Mapping[str, Mapping[str, Any]] = table("torch")["torch"]
    return rows
