"""``kind: ghcr``: GitHub's container registry."""

from __future__ import annotations

from components.registry import generic_registry
from components.registry.interface import Registry
from stacks.plan import Plan


class GhcrRegistry(generic_registry.PasswordRegistry):
    """GitHub's container registry: a token that may write packages, such as the job's own."""


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan."""
    return generic_registry.declare(plan, GhcrRegistry)
