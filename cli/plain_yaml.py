"""YAML without anchors."""

from __future__ import annotations

from typing import Any

import yaml


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values in full, and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Return True, so that no value is a reference."""
        return True


def _text(dumper: PlainDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


PlainDumper.add_representer(str, _text)
