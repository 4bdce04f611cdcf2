"""What sections c and d build: Slipway's torch image, and one ``RUN pip install`` on the same parent."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench import program
from bench.errors import BenchError
from bench.program import Program
from bench.setting import Setting
from stacks import plan
from stacks.versions.tables import line, order, table
from toolchain.steps import step

_NEEDED_BYTES: Final = 40_000_000_000
"""Two builds of torch of either kind in the engine, their wheels, and their compressed layers in the registry."""


@dataclass(frozen=True)
class Built:
    """An image that was built and pushed.

    ``reference`` is ``repository@sha256:...``, ``received`` the bytes that the registry has more of since.
    """

    reference: str
    seconds: float
    received: int


class Pair:
    """Both programs, on a parent image of their own that no build cache knows: their first builds are cold ones.

    pip's cache, which either Dockerfile mounts, is the engine's: what one has downloaded the other need not.
    """

    def __init__(self, setting: Setting, name: str) -> None:
        setting.engine.check_space(_NEEDED_BYTES)
        self._setting, self._name = setting, name
        self._registry = f"{setting.registry.address}/{name}"
        with step(f"{name}: a parent image that no cache knows"):
            self._parent = setting.engine.new_parent(
                f"{self._registry}/parent:{setting.mark}", f"{name}-{setting.mark}"
            )
        folder = setting.scratch / name
        self._ours = program.slipway(folder / "slipway", self._registry, {"flavor": "local", "base": self._parent})
        self._plain = program.bare(folder / "plain", self._registry, {})
        shutil.copytree(program.PROGRAMS / "plain", self._plain.dockerfiles / "plain")
        for made in (self._ours, self._plain):
            made.begin()

    def build(self, torch: Mapping[str, Any]) -> tuple[Built, Built]:
        """Build and push one torch, as a stack's ``slipway:torch`` names it: Slipway's image, then the plain one."""
        config = {"flavor": "local", "base": self._parent, "torch": dict(torch)}
        _, specs = plan.specs(config, self._name)
        program.configure(self._ours, self._registry, config)
        program.ask(self._plain, self._registry, {"plain": {"BASE_IMAGE": self._parent, **specs[0].args}})
        what = f"{self._name}: torch {specs[0].args['TORCH_VERSION']}"
        with step(f"{what}, Slipway's image"):
            ours = self._up(self._ours)
        with step(f"{what}, one RUN pip install"):
            plain = self._up(self._plain)
        return ours, plain

    def _up(self, made: Program) -> Built:
        before = self._setting.registry.stored()
        run = made.up()
        outputs = made.outputs()["images"]
        reference = next(iter(outputs.values()))
        received = self._setting.registry.stored() - before
        return Built(reference["ref"] if isinstance(reference, dict) else reference, run.seconds, received)


def patch_pair(releases: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the newest patch release of torch, and the release before it, that want the same of all they depend on.

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
