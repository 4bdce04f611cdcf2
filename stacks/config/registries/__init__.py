"""``slipway:registry``: where a stack's images are pushed, one module for each kind of registry.

Each subclass of :class:`RegistryConfig` in a module here is a kind of registry. Its component is in
``components/registry/<kind>_registry.py``. Credentials are secrets of the configuration, or come from the environment;
:mod:`containers.registry.logins.stack_login` checks them before a push.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from stacks.config.registries.registry_model import RegistryConfig


def kinds() -> tuple[type[RegistryConfig], ...]:
    """Return the model of each kind of registry, in the order of their modules' names."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, RegistryConfig) and value.__module__ == module.__name__
        if value is not RegistryConfig
    )


if TYPE_CHECKING:
    Registry = RegistryConfig
else:
    Registry = Annotated[Union[kinds()], Field(discriminator="kind")]  # noqa: UP007 - of as many as there are modules
