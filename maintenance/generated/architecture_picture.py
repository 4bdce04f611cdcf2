"""The picture of the code in ``docs/contributing.md``: its folders, and the imports between them.

It follows ``<!-- architecture -->`` and ends with the block. An arrow that others imply is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from stacks.config.stack_file import ROOT

PATH: Final = ROOT / "docs" / "contributing.md"
"""The page with the picture."""

PARTS: Final = {
    "ci": "the workflows",
    "bench": "measurements",
    "toolchain": "a machine, the embedded provider",
    "maintenance": "tables, generated files",
    "cli": "the command slipway",
    "components": "Pulumi components",
    "scaler": "runners on EC2",
    "policies": "the policy pack",
    "stacks": "what to build",
    "containers": "Dockerfiles, images, registries, engines",
}
"""The folders of Python, with what they hold."""

_BLOCK: Final = re.compile(r"(?<=<!-- architecture -->\n)```mermaid\n.*?```\n", re.DOTALL)


def text() -> str:
    """Return the page with today's picture."""
    picture = "\n".join(["```mermaid", "flowchart TD", *_nodes(), *_arrows(imported()), "```", ""])
    return _BLOCK.sub(lambda _: picture, PATH.read_text(encoding="utf-8"))


def imported() -> dict[str, set[str]]:
    """Return which of the folders each imports, entry points (`__main__.py`) and templates of a user's files aside."""
    files = {part: [each for each in (ROOT / part).rglob("*.py") if _is_module(each)] for part in PARTS}
    return {part: {each for file in files[part] for each in _imports(file)} - {part} for part in PARTS}


def _is_module(file: Path) -> bool:
    return file.name != "__main__.py" and "template" not in file.parts


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        yield from (top for name in names if (top := name.split(".")[0]) in PARTS)


def _nodes() -> Iterator[str]:
    for part, meaning in PARTS.items():
        yield f'    {part}["{part}/<br>{meaning}"]'


def _arrows(imports: Mapping[str, Collection[str]]) -> Iterator[str]:
    for part, targets in imports.items():
        for target in sorted(targets):
            if not any(target in imports[other] for other in targets):
                yield f"    {part} --> {target}"
