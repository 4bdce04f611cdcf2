"""``kind: local``: a registry on this machine."""

from __future__ import annotations

from components.registry.interface import Registry, RegistryArgs
from stacks.plan import Plan


class LocalRegistry(Registry):
    """A registry on this machine, with Docker's login for it."""


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan."""
    return LocalRegistry(
        "registry", RegistryArgs(repository=plan.config.registry.repository, publish=plan.config.publish)
    )
