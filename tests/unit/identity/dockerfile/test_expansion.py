"""Variables and quotes in a Dockerfile's words."""

from __future__ import annotations

import pytest

from containers.dockerfile.expansion import ExpansionError, expand, raw_words
from tests.helpers.every import every

VARIABLES = {"A": "a", "EMPTY": "", "UNKNOWN": None}


@every(
    "word, value",
    [
        ("x", "x"),
        ("$A-${A}", "a-a"),
        ("$NONE|${NONE}", "|"),
        ("${A:-w}${EMPTY:-w}${NONE:-w}", "aww"),
        ("${A-w}${EMPTY-w}${NONE-w}", "aw"),
        ("${A:+w}${EMPTY:+w}${NONE:+w}", "w"),
        ("${A+w}${EMPTY+w}${NONE+w}", "ww"),
        ("${A:?e}${EMPTY?e}", "a"),
        ("${NONE:-${A:+$A}}", "a"),
        ("${NONE:-'}'}", "}"),
        (r"\$A\\", "$A\\"),
        ("'$A'", "$A"),
        ('"$A\'"', "a'"),
        (r'"\$A\"\n"', r'$A"\n'),
        ("$$A", "A"),
        ("$@$10", ""),
        ("a$", "a$"),
        ("$.", "$."),
        ("<<A<", "<<A<"),
        ("é$A", "éa"),
        ("x\\", "x"),
    ],
)
def test_expand_of_each_form_is_its_value(word: str, value: str) -> None:
    assert expand(word, VARIABLES, escape="\\", complete=True) == value


def test_expand_with_backtick_keeps_backslashes() -> None:
    assert expand(r"C:\x`$A", VARIABLES, escape="`", complete=True) == r"C:\x$A"


@every(
    "word, message",
    [
        ("$UNKNOWN", "the value of UNKNOWN is known in the build alone"),
        ("${UNKNOWN:-x}", "the value of UNKNOWN is known in the build alone"),
        ("$NONE", "no ARG or ENV before it sets NONE; only the parent image might"),
        ("${NONE:-x}", "no ARG or ENV before it sets NONE; only the parent image might"),
        ("${EMPTY:?no value}", "EMPTY: no value"),
        ("${EMPTY:?}", "EMPTY: has no value"),
        ("${A#a}", "older engines do not have"),
        ("${A%%a}", "older engines do not have"),
        ("${A/a/b}", "older engines do not have"),
        ("${A//a/b}", "older engines do not have"),
        ("${A:=x}", "BuildKit does not have"),
        ("${A:#x}", "BuildKit does not have"),
        ("${A", "BuildKit does not have"),
        ("${}", "begins no variable"),
        ("${", "begins no variable"),
        ("${A:-x", "the '}' is missing"),
        ("'a", "a quote is not closed"),
        ('"a', "a quote is not closed"),
        ('"a\\', "a quote is not closed"),
    ],
)
def test_expand_without_a_value_is_refused(word: str, message: str) -> None:
    with pytest.raises(ExpansionError) as error:
        expand(word, VARIABLES, escape="\\", complete=False)
    assert str(error.value).startswith(f"{word}: ")
    assert message in str(error.value)


def test_expand_of_a_word_without_bounds_is_refused() -> None:
    values = {"A": "x" * (64 << 10)}
    assert len(expand("$A$A", values, escape="\\", complete=True)) == 128 << 10
    for word in ("$A$A$A", '"$A$A$A"', "${B:-$A$A}$A"):
        with pytest.raises(ExpansionError, match="values of more than 128 KiB"):
            expand(word, values, escape="\\", complete=True)
    deep = "${B:-" * 3000 + "}" * 3000
    for read in (raw_words, lambda word: expand(word, {}, escape="\\", complete=True)):
        with pytest.raises(ExpansionError, match="its variables are nested too deep$"):
            read(deep)


@every(
    "text, words",
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "'b c'", '"d e"', "f\\ g"]),
        ("cat <<EOF 3<<-E2", ["cat", "<<EOF", "3<<-E2"]),
        ("cat << EOF", ["cat", "<< EOF"]),
        ("a < b", ["a", "<", "b"]),
        ("$x ${y} ${z:-w v}", ["$x", "${y}", "${z:-w", "v}"]),
        ("${a%.*} ${b#x} ${c/d/e} ${f//g/h}", ["${a%.*}", "${b#x}", "${c/d/e}", "${f/g/h}"]),
        ('"$a \\" b"', ['"$a \\" b"']),
        (r"${a#\*} ${b%\*} ${c:-\*}", [r"${a#\*}", r"${b%\*}", "${c:-*}"]),
        ("a\u2003b", ["a", "b"]),
        ("", []),
    ],
)
def test_raw_words_keep_quotes_and_variables(text: str, words: list[str]) -> None:
    assert raw_words(text) == words


@every("text", ["don't", '"a', "${#x}", "${x[@]}", "${x:-y"])
def test_raw_words_of_an_unread_form_are_refused(text: str) -> None:
    with pytest.raises(ExpansionError):
        raw_words(text)
