"""What a Dockerfile takes: its arguments and their defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stacks.errors import SlipwayError

_ARGUMENT = re.compile(
    r"""^ARG[ \t]+(?P<name>[A-Za-z_]\w*)(?:=(?P<quote>["']?)(?P<default>.*?)(?P=quote))?[ \t]*$""", re.MULTILINE
)


def arguments(path: Path) -> dict[str, str | None]:
    """Return a Dockerfile's arguments and the default of each; None where no stage gives it one.

    Raises:
        SlipwayError: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SlipwayError(f"there is no Dockerfile {path}") from None
    found: dict[str, str | None] = {}
    for match in _ARGUMENT.finditer(text):
        found[match["name"]] = match["default"] if match["default"] is not None else found.get(match["name"])
    return found


def download_args(declared: Mapping[str, str | None], mirrors: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the arguments ``DOWNLOADS_*`` whose public default a mirror replaces.

    ``mirrors`` maps a public address to the one that replaces it, and what stands below it; the longest match wins.
    """
    result = {}
    for name, default in declared.items():
        if name.startswith("DOWNLOADS_") and default:
            fitting = [base for base in mirrors if default == base or default.startswith(f"{base}/")]
            if fitting:
                base = max(fitting, key=len)
                result[name] = mirrors[base] + default[len(base) :]
    return result
