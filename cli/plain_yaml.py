"""YAML without anchors."""

from __future__ import annotations

from typing import Any

import yaml


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values in full."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Return True, so that no value is a reference."""
        return True
