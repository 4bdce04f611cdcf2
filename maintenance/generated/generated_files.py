"""Every file that ``python -m maintenance schema`` and ``python -m maintenance docs`` write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.command_line import Sections
from cli.keys import stack_schema
from containers.errors import SlipwayError
from maintenance.generated import (
    architecture_picture,
    code_reference,
    commands_reference,
    configuration_reference,
    pulumi_project,
    readme_tables,
)
from stacks import flavors


def schemas() -> dict[Path, str]:
    """Return the current text of Pulumi.yaml and of the JSON schema of stack files."""
    return {pulumi_project.PATH: pulumi_project.text(), stack_schema.PATH: stack_schema.text()}


def pages(slipway: Sections) -> dict[Path, str]:
    """Return the current text of the pages; ``slipway`` is the command that they describe."""
    return {
        **readme_tables.readmes(),
        architecture_picture.PATH: architecture_picture.text(),
        code_reference.PATH: code_reference.text(),
        configuration_reference.PATH: configuration_reference.text(),
        commands_reference.PATH: commands_reference.text(slipway),
    }


def write(files: Mapping[Path, str]) -> list[Path]:
    """Bring files up to date; return those that were changed.

    Raises SlipwayError: a flavor is broken, whose keys they would lack.
    """
    if problems := flavors.broken():
        raise SlipwayError("\n".join(problems))
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return stale
