"""The pages of the documentation as data: fenced blocks, commands, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stacks.config.stack_file import ROOT

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Page:
    """One Markdown file, by its path in the checkout."""

    path: str

    @property
    def text(self) -> str:
        """The whole file."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """The file without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        """Return the fenced blocks in some languages, without their indentation."""
        return [
            re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
            for match in _FENCE.finditer(self.text)
            if match["language"] in languages
        ]

    def commands(self) -> list[str]:
        """Return the shell commands: those after a prompt, and those that stand in the prose as code."""
        session, script = ("".join(self.blocks(language)).replace("\\\n", " ") for language in ("console", "sh"))
        typed = [
            *(line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")),
            *(line for line in script.splitlines() if line and not line.startswith("#")),
        ]
        inline = re.findall(r"`((?:slipway|make|python -m) [^`]+)`", self.prose)
        return [*typed, *inline]

    def links(self) -> list[str]:
        """Return what the page links to inside the checkout."""
        targets = [match["target"] for match in _LINK.finditer(self.prose)]
        return [target for target in targets if "://" not in target]

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub makes them."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def stacks(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each whole stack file that the page has as an example."""
        for block in self.blocks("yaml"):
            if "slipway:flavor:" in block:
                values = yaml.load(block.replace("...", "MFkw"), Loader=yaml.BaseLoader)["config"]
                yield {key.removeprefix("slipway:"): value for key, value in values.items()}


@cache
def pages() -> tuple[Page, ...]:
    """Return every page that somebody reads: in the root, in docs, beside the images and the workflows."""
    patterns = ("*.md", "docs/**/*.md", "dockerfiles/**/README.md", ".github/workflows/README.md")
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return tuple(Page(path) for path in sorted(path.relative_to(ROOT).as_posix() for path in paths))


def page(path: str) -> Page:
    """Return one page."""
    return next(one for one in pages() if one.path == path)


def table(text: str, first: str) -> list[list[str]]:
    """Return the cells of the rows of the table whose head begins with ``first``."""
    _, _, body = text.partition(f"| {first} |")
    rows = body.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def existing(pattern: str, root: Path = ROOT) -> list[Path]:
    """Return the files that a path stands for; ``<...>`` in it is any name."""
    return list(root.glob(re.sub(r"<[^>]+>", "*", pattern)))
