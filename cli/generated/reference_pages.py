"""Every page that `slipway docs` writes."""

from __future__ import annotations

from pathlib import Path

from cli.command_line import Sections
from cli.generated import commands_reference, configuration_reference, readme_tables
from stacks.config.stack_file import ROOT


def pages(slipway: Sections) -> dict[Path, str]:
    """Return the current text of the pages; ``slipway`` is the command that they describe."""
    return {
        **readme_tables.readmes(ROOT),
        configuration_reference.PATH: configuration_reference.text(),
        commands_reference.PATH: commands_reference.text(slipway),
    }


def write(slipway: Sections) -> list[Path]:
    """Bring the pages up to date; return those that were changed."""
    current = pages(slipway).items()
    stale = {path: text for path, text in current if not path.exists() or path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(stale)
