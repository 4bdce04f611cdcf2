"""Lists of requirements in a git source: what is read, and what is refused."""

from __future__ import annotations

import pytest

from cli.locking import git_objects, requirement_lists
from containers.errors import SlipwayError
from stacks.config.fetching.mirrors import MirrorsConfig
from tests.helpers.every import every

LOCKED = {"https://github.com/acme/tool#refs/tags/v1": "0" * 40}
OPTION = "https://github.com/acme/tool: requirements.txt at v1 has an option '--extra-index-url'"


def read(monkeypatch: pytest.MonkeyPatch, content: bytes, **others: bytes) -> dict[str, bytes]:
    """Read ``requirements.txt`` of a source that has it and ``others``, by their paths."""
    files = {"requirements.txt": content, **others}
    monkeypatch.setattr(git_objects, "fetched", lambda *_: "0" * 40)
    monkeypatch.setattr(git_objects, "content", lambda _folder, _commit, path: files.get(path, b""))
    return requirement_lists.read("acme/tool v1 requirements.txt", MirrorsConfig(), LOCKED)


@every("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_option_after_any_end_of_line_is_refused(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"numpy{end}--extra-index-url http://127.0.0.1:9/simple\n"
    with pytest.raises(SlipwayError) as caught:
        read(monkeypatch, text.encode())
    assert str(caught.value) == OPTION


@every("start", [b"", b" \t", b"\xef\xbb\xbf", b"\xef\xbb\xbf ", "\u00a0\u3000".encode()])
def test_option_on_the_first_line_is_refused(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SlipwayError) as caught:
        read(monkeypatch, start + b"--extra-index-url=http://127.0.0.1:9/simple")
    assert str(caught.value) == OPTION


@every("content, byte", [(b"numpy\n\xe9\n", 7), ("--index-url http://127.0.0.1:9\n".encode("utf-16"), 1)])
def test_list_that_is_not_utf8_is_one_line(content: bytes, byte: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SlipwayError) as caught:
        read(monkeypatch, content)
    assert str(caught.value) == (
        f"https://github.com/acme/tool: requirements.txt at v1 is no list of requirements: byte {byte} is not UTF-8"
    )


def test_nested_lists_are_read_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"numpy\r-r build/a.txt # tools\r\n--requirement=build/b.txt\n"
    others = {
        "build/a.txt": b"# -i http://127.0.0.1:9\n-r b.txt\n",
        "build/b.txt": b"cmake\n-r a.txt\n",
    }
    lists = read(monkeypatch, content, **others)
    assert lists == {"requirements.txt": content, **others}
    assert next(iter(lists)) == "requirements.txt"


def test_option_of_a_nested_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SlipwayError) as caught:
        read(monkeypatch, b"-r a.txt\n", **{"a.txt": b"numpy\r-i http://127.0.0.1:9\n"})
    assert str(caught.value) == "https://github.com/acme/tool: a.txt at v1 has an option '-i'"


@every(
    "line, path",
    [
        ("-r ../../etc/passwd", "../../etc/passwd"),
        ("-r build/../../a.txt", "build/../../a.txt"),
        ("-r /etc/passwd", "/etc/passwd"),
        ("--requirement https://f.example/a.txt", "https:/f.example/a.txt"),
        ("-r .", "."),
        ("-r", "."),
        ("-r none.txt", "none.txt"),
        ("-r a.txt --index-url http://127.0.0.1:9", "a.txt --index-url http:/127.0.0.1:9"),
    ],
)
def test_path_that_is_no_list_of_the_source_is_refused(line: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = {path: b"numpy\n"} if path != "none.txt" else {}
    with pytest.raises(SlipwayError) as caught:
        read(monkeypatch, f"{line}\n".encode(), **{"a.txt": b"numpy\n", **outside})
    assert str(caught.value) == f"https://github.com/acme/tool has no list of requirements '{path}' at v1"
