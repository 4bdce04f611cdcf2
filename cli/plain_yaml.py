"""YAML for readers who do not know its anchors."""

from __future__ import annotations

from typing import Any

import yaml


class PlainDumper(yaml.SafeDumper):
    """Writes out in full what stands twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Say that nothing is to be referred to."""
        return True
