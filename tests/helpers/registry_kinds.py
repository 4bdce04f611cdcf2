"""The kinds of registry that a stack may have, from their models: no test lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from stacks.config.registries import kinds
from stacks.config.registries.registry_model import RegistryConfig

KINDS: Mapping[str, type[RegistryConfig]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in kinds()
}
"""The model of each kind, in the order of their modules' names."""

LISTED = ", ".join(sorted(KINDS))
"""The kinds as the refusal of another one lists them."""
