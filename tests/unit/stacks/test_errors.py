"""Text of others on one line of an error."""

from __future__ import annotations

import io
import subprocess
import time

import pytest

from containers.errors import Shown, one_line, out_of_time, shown
from tests.helpers.every import every


@every(
    "text, line",
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


def test_program_out_of_time_is_named_without_arguments() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        subprocess.run(["/bin/sleep", "1234"], timeout=1, check=False)
    line = "sleep did not end within 1 s: it may wait for a network or a lock; run this again"
    assert out_of_time(caught.value.cmd, caught.value.timeout) == line


def test_what_is_shown_keeps_lines_and_escapes_all_else() -> None:
    raw = io.BytesIO()
    stream = Shown(raw, encoding="utf-8")
    assert shown("one\ntwo é") == "one\ntwo é"
    stream.write("a\x1b[2J\nb\r\x9b\n  ::stop-commands::x\nsee ##[error] in c::d\n")
    stream.flush()
    assert raw.getvalue().decode() == "a\\x1b[2J\nb\\r\\x9b\n  : :stop-commands::x\nsee ## [error] in c::d\n"
