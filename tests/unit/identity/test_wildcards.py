"""Patterns with many wildcards are compared as Python's ``re`` compares them, in a time that their length bounds."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.dockerfile import wildcards
from containers.dockerfile.wildcards import comparing
from containers.errors import SlipwayError
from tests.helpers.every import every
from tests.unit.identity.test_content import made

PIECES = st.lists(
    st.sampled_from(
        ["(.*/)?", ".*", "[^/]*", "[^/]", "a", "b", "/", r"\.", "[ab]", "[^a]", "[b-z]*", r"\d", "-", "\n", "."]
    ),
    max_size=8,
)


@given(pieces=PIECES, text=st.text("ab/.-\n7", max_size=8), flags=st.sampled_from([re.ASCII, re.DOTALL]))
def test_pattern_fits_what_re_says_that_it_fits(pieces: list[str], text: str, flags: re.RegexFlag) -> None:
    expression = "".join(pieces)
    parts = list(wildcards._pieces(expression, flags))
    assert None not in parts
    automaton = wildcards._Automaton([part for part in parts if part])
    expected = re.fullmatch(expression, text, flags) is not None
    assert automaton.fits(text) is comparing(expression, flags)(text) is expected


@every(
    "expression, text",
    [
        ("[^/]*a" * 20 + "b", "a" * 200),
        ("(.*/)?" * 20 + "x", "a/" * 100 + "y"),
        (".*a" * 5000, "a" * 4000),
    ],
)
def test_pattern_of_many_wildcards_is_compared_at_once(expression: str, text: str) -> None:
    begun = time.process_time()
    assert not comparing(expression, re.ASCII)(text)
    assert time.process_time() - begun < 5


def test_pattern_with_an_escape_of_digits_is_compared() -> None:
    assert comparing(r"\x41[^/]*", re.ASCII)("Abc")


@pytest.mark.parametrize("repeated", ["", "[^/]*[^/]*[^/]*"])
@pytest.mark.parametrize(
    ("expression", "text"),
    [("[[a]", "["), (r"[\[a]", "["), ("[^[a]", "b"), ("[a&&b]", "&"), ("[~~]", "~"), ("[a||b]", "|"), (r"[\\[]", "[")],
)
def test_class_with_a_set_in_it_is_of_characters(
    expression: str, text: str, repeated: str, recwarn: pytest.WarningsRecorder
) -> None:
    fits = comparing(expression + repeated, re.ASCII)
    assert fits(text)
    assert not fits("c" if text != "b" else "[")
    assert not recwarn.list


def test_class_behind_an_escaped_bracket_is_a_class() -> None:
    fits = comparing(r"\[[ab]", re.ASCII)
    assert fits("[a")
    assert not fits("[[a]")


@every("expression", [r"[^/]*[^/]*[^/]*\b", "[^/]*^[^/]*[^/]*", "[^/]*[^/]*[^/]*[z-a]", "[^/]*("])
def test_pattern_with_more_than_wildcards_is_refused(expression: str) -> None:
    with pytest.raises(re.error):
        comparing(expression, re.ASCII)


def test_copied_names_are_those_that_several_wildcards_fit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("one.txt", "other.txt", "o" * 200):
        (tmp_path / "a" / name).write_text("")
    begun = time.process_time()
    content = made(tmp_path, "FROM scratch\nCOPY a/*o*t*h*e*t*t* /\n")
    assert list(content.files) == ["a/other.txt"]
    for pattern in ("a/*.t?t", "a/*o*e*.t?t"):
        assert list(made(tmp_path, f"FROM scratch\nCOPY {pattern} /\n").files) == ["a/one.txt", "a/other.txt"]
    assert not made(tmp_path, f"FROM scratch\nCOPY a/{'*o' * 20}x /\n").files
    assert time.process_time() - begun < 5


def test_class_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(SlipwayError, match=r"^dockerfiles/a/Dockerfile:2: COPY: a\[z-a\]: bad character range z-a"):
        made(tmp_path, "FROM scratch\nCOPY a[z-a] /\n")
