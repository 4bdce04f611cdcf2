"""One test for many values: each is tried, and each mistake is listed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.every import every


def test_every_lists_each_value_that_fails() -> None:
    tried = []

    @every("first, second", lambda: [(1, 1), (1, 2), (2, 2), (2, 3)])
    def here(first: int, second: int) -> None:
        tried.append(first)
        assert first == second, "differ"

    with pytest.raises(AssertionError) as caught:
        here()
    head, *lines = str(caught.value).splitlines()
    assert (head, len(tried)) == ("2 of 4:", 4)
    assert [line.partition(": ")[0] for line in lines if line.startswith("{")] == ["{'first'"] * 2
    assert "'second': 2}" in lines[0]
    assert "differ" in lines[0]


def test_every_without_a_value_fails() -> None:
    with pytest.raises(AssertionError, match="no value for name"):
        every("name", [])(lambda _: None)()


@every("value", [1, 2])
@every("other", [3, 4])
def test_every_gives_each_run_fixtures_of_its_own(
    value: int, other: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "HERE" not in os.environ
    monkeypatch.setenv("HERE", str(value))
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").write_text("")
    assert capsys.readouterr().out == ""
    sys.stdout.write(f"{value} {other}")


def test_every_lists_values_that_nothing_is_raised_for() -> None:
    @every("value", ["1", "x", "2"], ["first", "second", "third"])
    def here(value: str) -> None:
        with pytest.raises(ValueError, match="x"):
            int(value)

    with pytest.raises(AssertionError) as caught:
        here()
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["2 of 3", "first", "third"]


def test_every_ends_where_pytest_ends_a_test() -> None:
    tried = []

    @every("value", [1, 2])
    def here(value: int) -> None:
        tried.append(value)
        pytest.fail("hangs: not done within 3 s")

    with pytest.raises(pytest.fail.Exception, match="hangs"):
        here()
    assert tried == [1]


def test_every_hides_no_mistake_behind_a_skip() -> None:
    @every("value", [1, 2, 3])
    def here(value: int) -> None:
        if value == 2:
            pytest.skip("is not here")
        assert value == 3, "differs"

    with pytest.raises(AssertionError) as caught:
        here()
    assert "differs" in str(caught.value)
    assert "Skipped: is not here" in str(caught.value)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_every_refuses_what_would_not_run() -> None:
    async def later(value: int) -> None:
        raise AssertionError(value)

    def two(first: int, second: int) -> None:
        raise NotImplementedError

    cases: list[tuple[str, list[Any], Callable[..., Any], str]] = [
        ("value", [1], later, "is no generator or coroutine"),
        ("first, second", [(1,)], two, "argument 2"),
        ("first, second", [pytest.param(1, 2)], two, "pytest.param"),
    ]
    for names, rows, test, said in cases:
        with pytest.raises(AssertionError, match=said), warnings.catch_warnings(action="ignore"):
            every(names, rows)(test)()
    with pytest.raises(AssertionError, match="a name twice"):
        every("value, value", [])
