"""All parts, each after those that it needs."""

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from containers.child_environment import child_environment
from containers.engine.engine_platforms import PLATFORMS
from toolchain import environment, modes
from toolchain.checkout import Checkout
from toolchain.machine import apt, golang, steps
from toolchain.machine.network import apt_mirrors
from toolchain.machine.steps import output
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import (
    base_image,
    docker_engine,
    docker_registry,
    emulation,
    language_host,
    pulumi_cli,
    python_env,
    supply_chain_programs,
)
from toolchain.parts.part import Kind, Part, recall
from toolchain.parts.plugins import plugin, provider_choice

KINDS: Final[tuple[Kind, ...]] = (
    python_env.KIND, pulumi_cli.KIND, language_host.KIND, provider_choice.KIND, docker_engine.KIND,
    docker_registry.KIND, base_image.KIND,
)  # fmt: skip
"""The parts of the toolchain, each after those it needs."""
_SERVICES: Final = (docker_engine.KIND, docker_registry.KIND, base_image.KIND)
"""Those that need none of the others, so they are had beside them. The last to fail is waited for."""

_ON_DEMAND: Final[Mapping[str, Callable[[Checkout], Part]]] = {
    **{each.title: functools.partial(plugin.get, plugin=each) for each in plugin.REQUIRED},
    **{tool.name: functools.partial(supply_chain_programs.get, tool=tool) for tool in supply_chain_programs.TOOLS},
    **{emulation.name(each): functools.partial(emulation.get, platform=each) for each in PLATFORMS},
    **{base_image.name(each): functools.partial(base_image.get_for, platform=each) for each in PLATFORMS},
}
"""Parts for stacks that need them."""
_NEEDS: Final = {
    **{each.title: each.name for each in plugin.REQUIRED},
    **{tool.name: tool.name for tool in supply_chain_programs.TOOLS},
}
"""Their names in :mod:`toolchain.needs`."""


def unneeded_parts(
    checkout: Checkout, stack: str, *, pushing: bool = True, emulating: bool = True, building: bool = True
) -> set[str]:
    """Return the names of the parts that a stack does not use. Raises ToolchainError if its YAML is wrong.

    Without ``pushing``, as at a preview, nothing is signed. Without ``emulating``, other machines build what is for
    other platforms. Without ``building``, nothing is scanned either.
    """
    mirrors = apt_mirrors.merged(apt_mirrors.configured(os.environ), "{}")
    environment = child_environment(
        "toolchain.needs", **{apt_mirrors.VARIABLE: "", **mirrors}, PYTHONPATH=str(checkout.code)
    )
    python = checkout.venv / "bin" / "python"
    words = [word for word, wanted in (("pushing", pushing), ("building", building)) if wanted]
    needs = json.loads(output([python, "-P", "-m", "toolchain.needs", stack, *words], env=environment, timeout=60))
    based = needs["engine"] and base_image.QUALIFIED in needs["parents"]
    foreign = {each for each in needs["platforms"] if emulating and each != f"linux/{apt.machine()}"}
    used = {
        docker_engine.NAME: needs["engine"],
        docker_registry.NAME: needs["registry"],
        base_image.NAME: based,
        **{emulation.name(each): each in foreign for each in PLATFORMS},
        **{base_image.name(each): based and each in foreign for each in PLATFORMS},
        **{name: needs[need] for name, need in _NEEDS.items()},
    }
    return {name for name, needed in used.items() if not needed}


def _get(checkout: Checkout, kinds: Iterable[Kind]) -> list[Part]:
    return [kind.get(checkout) for kind in kinds]


def ready(
    checkout: Checkout, stack: str | None = None, *, pushing: bool = True, emulating: bool = True, building: bool = True
) -> list[Part]:
    """Get every part, or those that a stack needs, start the services, and write `.slipway/env`.

    For ``pushing``, ``emulating`` and ``building`` see :func:`unneeded_parts`. It is quick if nothing is missing.
    """
    modes.normalize(checkout)
    python_env.get(checkout)
    left_out = set(_ON_DEMAND)
    if stack:
        left_out = unneeded_parts(checkout, stack, pushing=pushing, emulating=emulating, building=building)
    kinds = [kind for kind in KINDS if kind.name not in left_out]
    with golang.caches(checkout):
        with ThreadPoolExecutor(1) as pool:
            services = pool.submit(_get, checkout, [kind for kind in kinds if kind in _SERVICES])
            try:
                parts = [*_get(checkout, [kind for kind in kinds if kind not in _SERVICES]), *services.result()]
            except KeyboardInterrupt:
                steps.end_programs()
                raise
        parts += [get(checkout) for name, get in _ON_DEMAND.items() if name not in left_out]
    environment.save(checkout, parts)
    return parts


def ready_for_preview(checkout: Checkout, stack: str) -> list[Part] | None:
    """Return the parts that a preview of a stack needs, if all are there and the services run. Nothing is changed.

    None if one is missing, or if it needs more than most stacks do.
    """
    try:
        if not python_env.find(checkout):
            return None
        left_out = unneeded_parts(checkout, stack, pushing=False, building=False)
        if not _ON_DEMAND.keys() <= left_out:
            return None
        parts = [kind.find(checkout) for kind in KINDS if kind.name not in left_out]
    except ToolchainError:
        return None  # with the lock, the same is said or mended
    present = [part for part in parts if part]
    return present if len(present) == len(parts) else None


def inspect(checkout: Checkout) -> Iterable[tuple[Kind, Part | None, str]]:
    """Yield each kind with its part or None, and the reason or error if it is missing. Nothing is changed."""
    for kind in KINDS:
        try:
            part = kind.find(checkout)
            yield kind, part, kind.missing if part is None and recall(checkout, kind.name) else ""
        except ToolchainError as error:
            yield kind, None, str(error)
