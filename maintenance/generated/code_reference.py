"""``docs/reference/code.md``: what each folder of modules holds, from the first lines of their packages' docstrings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from cli import text_table
from maintenance.generated.architecture_picture import PARTS
from stacks.config.stack_file import ROOT

PATH: Final = ROOT / "docs" / "reference" / "code.md"
"""The page."""

_HEAD: Final = """# The code

What each folder of modules holds, as its `__init__.py` says. [Layout](../contributing.md#layout) shows their imports.
`dockerfiles/` has a folder for each image, and `common/`.

"""


def text() -> str:
    """Return the page as the packages are now."""
    return _HEAD + text_table.markdown(
        ["Folder", "Holds"], *([f"`{room}/`", meaning] for room, meaning in rooms().items())
    )


def rooms() -> dict[str, str]:
    """Return what each folder of modules holds, but a template of a user's files; empty where it does not say."""
    files = (file for part in PARTS for file in (ROOT / part).rglob("*.py") if "template" not in file.parts)
    return {
        folder.relative_to(ROOT).as_posix(): _says(folder / "__init__.py")
        for folder in sorted({file.parent for file in files})
    }


def _says(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) if package.exists() else None
    return (docstring or "").partition("\n")[0].replace("``", "`")
