"""What a command says of its JSON, as its help has it, compared with what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import yaml

from cli.command_line import Command
from cli.main import slipway


def differing(name: str, document: Any) -> list[str]:
    """Return where a document of a command is not as its help says; nothing if it is all as there.

    A list that the help has empty has plain values; a key in capitals stands for any; ``tag`` may be missing.
    """
    command = slipway.get_command(click.Context(slipway), name)
    assert isinstance(command, Command)
    assert command.json
    return list(_differing(yaml.safe_load(command.json), document, name))


def _differing(shape: Any, document: Any, place: str) -> Iterator[str]:
    if isinstance(shape, dict) and isinstance(document, dict):
        every = next(iter(shape)) if len(shape) == 1 else ""
        below = dict.fromkeys(document, shape[every]) if every.isupper() else shape
        yield from (f"{place}.{key}" for key in sorted(below.keys() ^ document.keys()) if key != "tag")
        for key in below.keys() & document.keys():
            yield from _differing(below[key], document[key], f"{place}.{key}")
    elif isinstance(shape, list) and isinstance(document, list):
        for each in document:
            yield from _differing(shape[0] if shape else None, each, f"{place}[]")
    elif isinstance(document, dict | list):
        if place.rpartition(".")[2] not in {"old", "new"}:  # any value of an input
            yield f"{place}: {document!r}"
    elif shape is not None and document is not None:
        yield f"{place}: {document!r}"
