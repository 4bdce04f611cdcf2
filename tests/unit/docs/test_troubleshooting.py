"""The page of errors: each text on it is one of the product's."""

from __future__ import annotations

import ast
import re

from stacks.config.stack_file import ROOT
from tests.unit.test_layout import modules, tree


def test_each_text_on_the_page_is_an_errors() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    words = [text.split() for text in quoted]  # of which each may be written over several lines
    sources = ((file, file.read_text(encoding="utf-8")) for file in modules().values())
    files = [file for file, source in sources if any(all(word in source for word in text) for text in words)]
    texts = "\n".join(
        node.value
        for file in files
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert len(quoted) > 10
    assert [text for text in quoted if text not in texts] == []
