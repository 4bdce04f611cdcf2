"""How every subcommand of ``slipway`` looks: help in sections, examples, suggestions, one line for a mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from containers.errors import suggest

HELP: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of click's contexts. A subcommand's has them from its group's."""


def is_reference(word: str) -> bool:
    """Return whether a word is an image's reference: names of stacks and of their images have none of ``/ : @``."""
    return bool(set("/:@") & set(word))


class Command(click.Command):
    """A subcommand with ``examples``: command lines, each with what it does; the help shows them, and tests parse them.

    ``json`` is what ``--json`` prints, as YAML in braces: keys have values, lists or further keys, and a key in
    capitals stands for any; the help shows it, and tests compare it.
    """

    def __init__(self, *arguments: Any, examples: Sequence[tuple[str, str]], json: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = examples
        self.json = json

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        super().format_epilog(ctx, formatter)
        if self.json:
            with formatter.section("JSON"):
                formatter.write_text(self.json)
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write_text(f"# {meaning}")
                formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")


def command(
    *examples: tuple[str, str], name: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Return the decorator that makes a function a :class:`Command`, by default of the function's name."""
    return click.command(name, cls=Command, examples=examples, **options)


class Sections(click.Group):
    """A group whose help lists its commands in ``sections``: each one's heading and commands, in the order to show."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[click.Command]], **options: Any) -> None:
        super().__init__(*arguments, context_settings=HELP, **options)
        self.sections = sections
        for command in (command for commands in sections.values() for command in commands):
            self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands in the order of the sections."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """Write the sections."""
        width = max(map(len, self.commands))
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                rows = [(command.name or "", command.get_short_help_str(limit=100)) for command in commands]
                formatter.write_dl([(name.ljust(width), meaning) for name, meaning in rows])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first in ``args``.

        Raises UsageError: there is no such command; the message names the nearest.
        """
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise click.UsageError(f"no such command '{args[0]}'{suggest(args[0], self.commands)}", ctx)
        return super().resolve_command(ctx, args)
