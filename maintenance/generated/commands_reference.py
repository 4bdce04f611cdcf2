"""``docs/reference/commands.md``: the help of every command, from the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from cli.command_line import HELP, Sections
from stacks.config.stack_file import ROOT

PATH: Final = ROOT / "docs" / "reference" / "commands.md"
"""The page's file."""

_WIDTH: Final = 100
"""Columns of the help in the page, whatever the terminal has."""

_HEAD: Final = """\
# Commands

<!-- Generated from the command itself by `python -m maintenance docs`. -->

`slipway` is on PATH after `. .slipway/env`. `make up` and `make preview` build and preview a stack. `eval "$(slipway
completion bash)"`, or `zsh`, completes commands, options, stacks and images.
"""


def text(slipway: Sections) -> str:
    """Return the page."""
    return "\n".join(_lines(slipway))


def _lines(slipway: Sections) -> Iterator[str]:
    yield _HEAD
    for heading, commands in slipway.sections.items():
        yield f"## {heading}\n"
        for command in commands:
            settings = {**HELP, "terminal_width": _WIDTH}
            with click.Context(command, info_name=f"slipway {command.name}", **settings) as context:
                yield f"### slipway {command.name}\n\n```text\n{command.get_help(context)}\n```\n"
