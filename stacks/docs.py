"""The tables of keys in the images' READMEs, made from the models.

A README has the keys of the flavors that a line of it names, ``<!-- keys: base nccl -->``, from there to an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from stacks import flavors
from stacks.config import StackConfig
from stacks.model import Model
from stacks.source import NAMESPACE, ROOT
from stacks.spec import CONTEXT

MARK: Final = re.compile(r"(?P<mark><!-- keys: (?P<flavors>[a-z ]+) -->\n)(?:\|.*\n)*")
"""The line that names the flavors, and the table below it."""


def table(names: Sequence[str]) -> str:
    """Return all keys of some flavors but those that every stack has, as a table in Markdown."""
    having: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        for key, field in flavors.flavor(name).Config.model_fields.items():
            if key not in StackConfig.model_fields:
                for row in _rows(f"{NAMESPACE}:{field.alias}", field):
                    having.setdefault(row, []).append(name)
    several = len(names) > 1
    head = ("Key", *(["Flavors"] if several else []), "Default", "Meaning")
    rows = [
        (f"`{key}`", *([", ".join(found)] if several else []), default, meaning)
        for (key, default, meaning), found in having.items()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def _rows(key: str, field: FieldInfo) -> Iterator[tuple[str, str, str]]:
    """Yield a key, its default and its meaning; of a key that holds others, those."""
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, Model):
        for inner in type(default).model_fields.values():
            yield from _rows(f"{key}.{inner.alias}", inner)
    else:
        yield key, _shown(default), (field.description or "").replace("|", "\\|")


def _shown(default: Any) -> str:
    if default is None or default in ({}, ()) or (isinstance(default, tuple) and isinstance(default[0], Model)):
        return ""  # what models stand for, their key's meaning says
    text = ", ".join(default) if isinstance(default, tuple) else str(default)
    return f"`{text.lower() if isinstance(default, bool) else text}`"


def readmes(root: Path = ROOT) -> dict[Path, str]:
    """Return the READMEs of the images that have a table of keys, with their text as it ought to be."""
    found = {}
    for path in sorted((root / CONTEXT).glob("*/README.md")):
        text = path.read_text(encoding="utf-8")
        if MARK.search(text):
            found[path] = MARK.sub(lambda match: match["mark"] + table(match["flavors"].split()), text)
    return found


def write(root: Path = ROOT) -> list[Path]:
    """Bring the READMEs up to date; return those that were changed."""
    stale = {path: text for path, text in readmes(root).items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    return list(stale)
