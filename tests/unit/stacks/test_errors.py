"""Text of others on one line of an error."""

from __future__ import annotations

import time

import pytest

from stacks.errors import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("https://me:secret@h.example/x", "https://***@h.example/x"),
        ("a //b@c //d@e f", "a //***@e f"),
        ("//a\nb@c", "//***@c"),
        ("//@", "//***@"),
        ("a@b //c", "a@b //c"),
        ("a@b", "a@b"),
        ("/@/", "/@/"),
        ("a\n\x1b", "a\\n\\x1b"),
        (7, "7"),
    ],
)
def test_credential_in_an_address_is_starred(text: object, line: str) -> None:
    assert one_line(text) == line


def test_text_of_slashes_is_put_on_a_line_at_once() -> None:
    begun = time.process_time()
    assert one_line("/" * 300_000) == "/" * 119 + "…"
    assert time.process_time() - begun < 2
