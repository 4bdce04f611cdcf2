"""One test for many values, whose failure lists those that it fails with."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

_LONGEST = 300
"""Characters of a value that are shown."""
_OF_A_ROW = (Exception, pytest.skip.Exception, pytest.xfail.Exception)
"""Exceptions that are a value's mistake."""


def every(
    names: str, values: Iterable[Any] | Callable[[], Iterable[Any]], labels: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Have a test run with each of some values, as one case.

    Each run has a `tmp_path` of its own, a `monkeypatch` that is taken back after it, and a `capsys` that is empty; another
    fixture is one for all, so a run must leave it as it was. What takes long to find is given as a function, so that nothing
    is done while tests are collected. A failure has the traceback of the first mistake. A run may not be skipped: nobody
    would see the mistakes before it.

    Args:
        names: the test's parameters for a value, separated by commas.
        values: a value for each run, or a tuple of them where there are several names.
        labels: what a failure calls each value, where its text says little, as that of a function.
    """
    given, called = [name.strip() for name in names.split(",")], [*labels]
    assert len({*given}) == len(given), f"a name twice: {names}"

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def runs(**fixtures: Any) -> None:
            rows = list(values() if callable(values) else values)
            assert rows, f"no value for {names}"
            assert len(called) in {0, len(rows)}, f"{len(called)} labels for {len(rows)} values"
            mistakes: list[str] = []
            first: BaseException | None = None
            for place, row in enumerate(rows):
                value: Any = row
                try:
                    assert not hasattr(row, "marks"), "pytest.param is for pytest.mark.parametrize"
                    value = dict(zip(given, row if len(given) > 1 else (row,), strict=True))
                    with _fresh(fixtures, str(place)) as own:
                        assert test(**own, **value) is None, "a test returns nothing: it is no generator or coroutine"
                except BaseException as error:
                    text = f"{called[place] if called else str(value)[:_LONGEST]}: "
                    # What else is no Exception ends a test: Ctrl-C, or a hang.
                    if not isinstance(error, _OF_A_ROW) and not str(error).startswith("DID NOT "):
                        error.add_note("\n".join([*mistakes, f"with {text}"]))
                        raise
                    first = first or error
                    mistakes.append(text + "".join(traceback.format_exception_only(error)).rstrip())
            if mistakes:
                raise AssertionError("\n".join([f"{len(mistakes)} of {len(rows)}:", *mistakes])) from first

        whole = inspect.signature(test)
        left = [parameter for name, parameter in whole.parameters.items() if name not in given]
        runs.__signature__ = whole.replace(parameters=left)  # type: ignore[attr-defined]
        return runs

    return decorate


@contextmanager
def _fresh(fixtures: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield a test's fixtures for one run of it; ``name`` is that of its folder."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / name
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        yield own
