"""The rules of ignore files: Docker's table of patterns, and what must hold for any pattern."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from containers.dockerfile.context import walk
from containers.dockerfile.ignore import Matcher, PatternError, clean, parse
from tests.helpers.every import every
from toolchain.provider.build_context import matcher, mode_text, resolve_links

MATCHES = [
    ("**", "file", True),
    ("**", "dir/file", True),
    ("**/", "file", True),
    ("**/**", "dir/file", True),
    ("dir/**", "dir/file", True),
    ("dir/**", "dir", False),
    ("**/dir", "dir/file", True),
    ("**/dir2/*", "dir/dir2/file", True),
    ("**/dir2/**", "dir/dir2/dir2/file", True),
    ("**file", "dir/file", True),
    ("**/file", "file", True),
    ("**/file", "dir/filed", False),
    ("**/*.txt", "dir/a.txt", True),
    ("a**", "abc/def", True),
    ("a**b", "ax/b", True),
    ("a/*", "a/b/c", True),
    ("a/*/c", "a/b/c", True),
    ("a/*/c", "a/b/d/c", False),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "bx", False),
    ("a\\*b", "a*b", True),
    ("a\\*b", "axb", False),
    ("a.b", "axb", False),
    ("a+(b)|c$", "a+(b)|c$", True),
    ("*.go", "sub/main.go", False),
    ("sub", "sub/deep/file", True),
    (".", "file", False),
    ("日本*", "日本語", True),
    ("abc.def", "abc.def", True),
    ("**/foo/bar", "foo/bar", True),
    ("abc/**", "abc/def/ghi", True),
    ("**/.foo", "bar.foo", False),
]


@every("pattern, path, ignored", MATCHES)
def test_matcher_of_one_pattern_ignores_as_docker_does(pattern: str, path: str, ignored: bool) -> None:
    assert Matcher([pattern]).ignores(path) is ignored


@every(
    "patterns, path, ignored",
    [
        (["*", "!a"], "a", False),
        (["!a", "*"], "a", True),
        (["docs", "!docs/README", "docs/README"], "docs/README", True),
        (["**", "!a/b"], "a/b/c", False),
        (["a", "!a/b"], "a/c", True),
        (["a/*", "!a/b"], "a/b/c", False),
        (["*", "!a/*.md", "a/x.md"], "a/x.md", True),
        ([], "a", False),
    ],
)
def test_matcher_of_patterns_lets_the_last_one_win(patterns: list[str], path: str, ignored: bool) -> None:
    assert Matcher(patterns).ignores(path) is ignored


@every("pattern", ["[a][", "[a][]b]", "[a]\\"])
def test_matcher_of_two_classes_refuses_a_bad_second(pattern: str) -> None:
    with pytest.raises(PatternError, match="syntax error in pattern"):
        Matcher([pattern])


def test_parse_of_ignore_file_returns_clean_patterns() -> None:
    content = b"\xef\xbb\xbf# no\n\n a \r\n/b//c/\n! /d/../e\n!\n/\n\t\n"
    assert parse(content) == ["a", "b/c", "!e", "!", "/"]


PART = st.sampled_from(["a", "b", "ab", "a.txt", "*", "**", "?", "[ab]", "a*", "*.txt", ".."])
PATTERN = st.builds(
    lambda parts, exception: ("!" if exception else "") + "/".join(parts),
    st.lists(PART, min_size=1, max_size=3),
    st.booleans(),
)
PATHS = ["a", "b", "ab", "a.txt", "a/a", "a/b", "b/a/a.txt", "b/b/b", "b/a.txt", "a/ab/a/b", "ab/a/b/a.txt"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for path in PATHS:
        target = root / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if not any(other.startswith(path + "/") for other in PATHS):
                target.touch()
    return root


PRUNED = re.compile(r"!.*/\*/\*\*$")
"""Exceptions from which Docker's walk removes both globs, so that it does not look where they could match."""


def test_exception_that_ends_in_two_globs_has_no_effect(tree: Path) -> None:
    """Source: `patternWithoutTrailingGlob` of tonistiigi/fsutil, filter.go."""
    assert not matcher(["a", "!a/*/**"]).ignores("a/ab/a/b")
    assert "a/ab/a/b" not in {entry.path for entry in walk(str(tree), matcher(["a", "!a/*/**"]))}


@example(["*", "!.."])
@example(["*", "!../x"])
@example(["*", "!."])
@given(patterns=st.lists(PATTERN, max_size=4).filter(lambda patterns: not any(map(PRUNED.match, patterns))))
def test_walk_yields_exactly_what_is_not_ignored(tree: Path, patterns: list[str]) -> None:
    """Pruning changes no result: a file is yielded exactly if the last pattern that matches it is an exception."""
    ignored = matcher(patterns)
    everything = [os.path.relpath(Path(at, name), tree) for at, _, names in os.walk(tree) for name in names]
    kept = [entry.path for entry in walk(str(tree), ignored)]
    files = [path for path in kept if not (tree / path).is_dir()]
    assert sorted(files) == sorted(path for path in everything if not ignored.ignores(path))
    assert all(str(Path(path).parent) in {".", *kept[: kept.index(path)]} for path in kept), "parents come first"
    assert len(set(kept)) == len(kept)


@given(st.lists(st.sampled_from(["", ".", "..", "a", "b"]), max_size=6).map("/".join))
def test_clean_of_cleaned_path_returns_it(path: str) -> None:
    once = clean(path)
    assert clean(once) == once
    assert "//" not in once


@every(
    "mode, text",
    [
        (0o100644, "-rw-r--r--"),
        (0o104755, "urwxr-xr-x"),
        (0o106755, "ugrwxr-xr-x"),
        (0o101600, "trw-------"),
        (0o120777, "Lrwxrwxrwx"),
        (0o010600, "prw-------"),
        (0o060660, "Drw-rw----"),
        (0o020666, "Dcrw-rw-rw-"),
        (0o140755, "-rwxr-xr-x"),
    ],
)
def test_mode_text_of_mode_is_gos(mode: int, text: str) -> None:
    assert mode_text(mode) == text


LINKS: list[tuple[str, Callable[[Path], Any], str]] = [
    ("a", lambda p: (p / "a").touch(), "a"),
    ("l", lambda p: [(p / "a").touch(), (p / "l").symlink_to("a")], "a"),
    ("l/x", lambda p: [(p / "d").mkdir(), (p / "d/x").touch(), (p / "l").symlink_to("d")], "d/x"),
    ("d/l", lambda p: [(p / "d").mkdir(), (p / "a").touch(), (p / "d/l").symlink_to("../a")], "a"),
    ("d/../a", lambda p: [(p / "d").mkdir(), (p / "a").touch()], "a"),
    ("l/../a", lambda p: [(p / "d/e").mkdir(parents=True), (p / "d/a").touch(), (p / "l").symlink_to("d/e")], "d/a"),
    ("./", lambda _: None, "."),
    ("l", lambda p: [(p / "l").symlink_to("/")], "/"),
]


@every("path, make, resolved", LINKS)
def test_resolve_links_of_path_returns_gos_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, make: Callable[[Path], Any], resolved: str
) -> None:
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert resolve_links(path) == resolved
    assert os.path.realpath(resolve_links(path)) == os.path.realpath(path)
