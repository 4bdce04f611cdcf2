"""One module or package per flavor: a ``Config`` model with its keys, and ``images(config)``, the specs that it builds.

A module may also have the functions ``requirements(config)`` and ``job(config, images, nodes)``.

Each module or package here with a ``Config`` is a flavor; no list names them. ``torch_family`` has none, because it is
shared by flavors.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

from stacks.config.load import build
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.errors import SlipwayError, one_line, suggest
from stacks.jobs.requirements import Requirements
from stacks.spec import ImageSpec


class Flavor(Protocol):
    """What a flavor's module offers."""

    Config: type[StackConfig]

    def images(self, config: Any) -> list[ImageSpec]:
        """Return the flavor's images, in any order."""


@runtime_checkable
class HasRequirements(Protocol):
    """A flavor's module whose images differ from the defaults of :class:`Requirements`."""

    def requirements(self, config: Any) -> Requirements:
        """Return what its images need of the machines that run them."""


@runtime_checkable
class HasJob(Protocol):
    """A flavor's module with an example of a job."""

    def job(self, config: Any, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
        """Return Kubernetes objects; ``images`` maps the stack's images to their references."""


def requirements(config: StackConfig) -> Requirements:
    """Return what the images of a stack need of the machines that run them."""
    module = flavor(config.flavor)
    return module.requirements(config) if isinstance(module, HasRequirements) else Requirements()


def names() -> list[str]:
    """Return the names of all flavors, sorted."""
    return sorted(name for name in _modules() if _flavor(name))


@cache
def _modules() -> frozenset[str]:
    return frozenset(module.name for module in pkgutil.iter_modules(__path__))


def _flavor(name: str) -> Flavor | None:
    """Return a flavor's module; None if no flavor has the name."""
    if name not in _modules():
        return None
    module = importlib.import_module(f"{__name__}.{name}")
    return cast("Flavor", module) if hasattr(module, "Config") else None


def flavor(name: str) -> Flavor:
    """Return a flavor's module.

    Raises:
        SlipwayError: there is no such flavor.
    """
    module = _flavor(name)
    if module is None:
        known = names()
        raise SlipwayError(
            f"{NAMESPACE}:flavor: '{one_line(name)}' is no flavor{suggest(name, known)}; allowed: {', '.join(known)}"
        )
    return module


def load(values: Mapping[str, Any], where: str) -> StackConfig:
    """Make the typed configuration of a stack from its values; ``where`` names the stack in errors.

    Raises:
        SlipwayError: the flavor is missing or unknown, or a value is wrong; one line each.
    """
    name = values.get("flavor")
    if not isinstance(name, str) or not name:
        raise SlipwayError(f"{where}: {NAMESPACE}:flavor is required; allowed: {', '.join(names())}")
    try:
        module = flavor(name)
    except SlipwayError as error:
        raise SlipwayError(f"{where}: {error}") from None
    return build(module.Config, values, where)
