"""One test for many values: each is tried, and each mistake is listed."""

from __future__ import annotations

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
def test_every_leaves_other_parameters_to_fixtures(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", str(value))
