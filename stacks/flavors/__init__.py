"""One module or package per flavor: a ``Config`` model with its keys, and ``images(config)``, the specs that it builds.

A repository's own are in its folder ``flavors``. What they may import is :mod:`slipway`. A module may also have the
functions ``requirements(config)`` and ``job(config, images, nodes)``.

Each module or package here with a ``Config`` is a flavor; no list names them. ``torch_family`` has none, because it is
shared by flavors.
"""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, cast, runtime_checkable

from containers.errors import SlipwayError, one_line, suggest
from stacks.config.load import build
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.jobs.requirements import Requirements
from stacks.places import FLAVORS, ROOT
from stacks.spec import ImageSpec

_OWN: Final = ROOT / FLAVORS
"""The folder of the repository's own flavors. What Slipway has here comes first."""
__path__.append(str(_OWN))

_LONGEST_FAULT: Final = 200
"""Characters of an error of a flavor's own code."""


class Flavor(Protocol):
    """What a flavor's module offers."""

    Config: type[StackConfig]

    def images(self, config: Any) -> list[ImageSpec]:
        """Return the flavor's images, in any order."""


@runtime_checkable
class HasRequirements(Protocol):
    """A flavor's module whose images differ from the defaults of :class:`Requirements`."""

    def requirements(self, config: Any) -> Requirements:
        """Return the needs of its images of the machines that run them."""


@runtime_checkable
class HasJob(Protocol):
    """A flavor's module with an example of a job."""

    def job(self, config: Any, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
        """Return Kubernetes objects; ``images`` maps the stack's images to their references."""


def requirements(config: StackConfig) -> Requirements:
    """Return the needs of a stack's images of the machines that run them."""
    module = flavor(config.flavor)
    with own_code(config.flavor):
        return module.requirements(config) if isinstance(module, HasRequirements) else Requirements()


def names() -> list[str]:
    """Return the names of all flavors, sorted, without those of :func:`broken`."""
    return sorted(name for name in _modules() if isinstance(_flavor(name), ModuleType))


def broken() -> list[str]:
    """Return a line for each flavor that cannot be loaded. It stops the stacks that select it, and nothing else."""
    problems = [problem for name in sorted(_modules()) if isinstance(problem := _flavor(name), str)]
    clashing = sorted(_named(_OWN) & _named(Path(__file__).parent))
    return [*problems, *(f"{FLAVORS}/{name}: Slipway has a module '{name}' already: rename yours" for name in clashing)]


@cache
def _modules() -> frozenset[str]:
    return _named(Path(__file__).parent) | _named(_OWN)


def _named(folder: Path) -> frozenset[str]:
    """Return the names of the modules and packages in a folder, which need not exist."""
    return frozenset(module.name for module in pkgutil.iter_modules([str(folder)]))


@cache
def _flavor(name: str) -> ModuleType | str | None:
    """Return a flavor's module, or why it cannot be loaded on one line; None if no flavor has the name."""
    if name not in _modules():
        return None
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # a flavor may be anybody's, and for another version
        return _fault(name, error)
    config = getattr(module, "Config", None)
    if config is None:
        return None
    if not (isinstance(config, type) and issubclass(config, StackConfig)):
        return _fault(name, TypeError("Config is not a subclass of stacks.config.stack_config.StackConfig"))
    if not callable(getattr(module, "images", None)):
        return _fault(name, TypeError("it has no function images(config)"))
    return module


def _fault(name: str, error: Exception) -> str:
    """Return on one line why a flavor's own code failed, and at which of its lines."""
    folders = {Path(__file__).parent: "stacks/flavors", _OWN: FLAVORS}
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno))
    places = [
        f"{shown}/{Path(file).relative_to(folder)}:{line}"
        for file, line in lines
        for folder, shown in folders.items()
        if file != __file__ and Path(file).is_relative_to(folder)
    ]
    where = places[-1] if places else f"{FLAVORS if name in _named(_OWN) else 'stacks/flavors'}/{name}"
    what = one_line(f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}", _LONGEST_FAULT)
    return f"{where}: the flavor '{one_line(name)}' is broken: {what}"


@contextmanager
def own_code(name: str, where: str = "") -> Iterator[None]:
    """Turn an error of a flavor's own code, other than a refusal, into one line after ``where``."""
    try:
        yield
    except SlipwayError:
        raise
    except Exception as error:
        raise SlipwayError(f"{where}{_fault(name, error)}") from error


def images(config: StackConfig) -> list[ImageSpec]:
    """Return the images of a stack, in any order.

    Raises SlipwayError: the flavor refuses the configuration, or its own code fails.
    """
    with own_code(config.flavor):
        return flavor(config.flavor).images(config)


def flavor(name: str) -> Flavor:
    """Return a flavor's module. Raises SlipwayError: there is no such flavor, or it cannot be loaded."""
    module = _flavor(name)
    if isinstance(module, str):
        raise SlipwayError(module)
    if module is None:
        known = names()
        raise SlipwayError(
            f"{NAMESPACE}:flavor: '{one_line(name)}' is not a flavor{suggest(name, known)}; allowed: {', '.join(known)}"
        )
    return cast("Flavor", module)


def load(values: Mapping[str, Any], where: str) -> StackConfig:
    """Make the typed configuration of a stack from its values; ``where`` names the stack in errors.

    Raises SlipwayError: the flavor is missing or unknown, or a value is wrong; one line each.
    """
    name = values.get("flavor")
    if not isinstance(name, str) or not name:
        near = next((f"; rename '{one_line(key)}'" for key in values if suggest(key, ["flavor"])), "")
        raise SlipwayError(f"{where}: {NAMESPACE}:flavor is required; allowed: {', '.join(names())}{near}")
    try:
        module = flavor(name)
    except SlipwayError as error:
        raise SlipwayError(f"{where}: {error}") from None
    with own_code(name, f"{where}: "):
        return build(module.Config, values, where)
