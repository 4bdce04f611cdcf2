"""The ``config:`` block of Pulumi.yaml, made from the models so that ``pulumi`` shows and checks the same keys.

Only keys that every flavor has with one scalar default are listed: a key there without a default is required of
every stack, and a default there is given to every stack. The models remain the gate for all others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE, ROOT

PATH: Final = ROOT / "Pulumi.yaml"
"""The file with the block."""

_TYPES = {bool: "boolean", int: "integer", str: "string"}
_START = "# Generated from the models of stacks/config by `python -m maintenance schema`.\n"


def config_block() -> str:
    """Return the block at the end of Pulumi.yaml, with its heading comment."""
    entries: dict[str, dict[str, Any]] = {}
    for name, field in StackConfig.model_fields.items():
        key = f"{NAMESPACE}:{field.alias or name}"
        if field.is_required():
            entries[key] = {"type": "string", "description": field.description}
        elif type(field.default) in _TYPES:
            kind = _TYPES[type(field.default)]
            entries[key] = {"type": kind, "description": field.description, "default": field.default}
    return _START + yaml.safe_dump({"config": entries}, sort_keys=False, width=110)


def text(path: Path = PATH) -> str:
    """Return a Pulumi.yaml with the block of the models."""
    return path.read_text(encoding="utf-8").partition(_START)[0] + config_block()
