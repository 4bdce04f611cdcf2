"""``kind: acr``: Azure's container registry."""

from __future__ import annotations

from components.registry import generic_registry
from components.registry.interface import Registry
from stacks.plan import Plan


class AcrRegistry(generic_registry.PasswordRegistry):
    """Azure's container registry: a service principal, a token of the registry's own, or the job's identity."""


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan."""
    return generic_registry.declare(plan, AcrRegistry)
