"""``kind: gar``: Google Artifact Registry."""

from __future__ import annotations

from components.registry import generic_registry
from components.registry.interface import Registry
from stacks.plan import Plan


class GarRegistry(generic_registry.PasswordRegistry):
    """Google Artifact Registry, whose repository exists: application default credentials, a key or a token."""


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan."""
    return generic_registry.declare(plan, GarRegistry)
