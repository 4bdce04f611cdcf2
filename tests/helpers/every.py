"""One test for many values, whose failure lists those that it fails with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest


def every(
    names: str, values: Iterable[Any] | Callable[[], Iterable[Any]], labels: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Have a test run with each of some values, as one case.

    Each run has a `tmp_path` of its own, a `monkeypatch` that is taken back after it, and a `capsys` that is empty; another
    fixture is one for all, so a run must leave it as it was. What takes long to find is given as a function, so that nothing
    is done while tests are collected.

    Args:
        names: the test's parameters for a value, separated by commas.
        values: a value for each run, or a tuple of them where there are several names.
        labels: what a failure calls each value, where its text says little, as that of a function.
    """
    given = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def runs(**fixtures: Any) -> None:
            rows = list(values() if callable(values) else values)
            assert rows, f"no value for {names}"
            mistakes: list[str] = []
            called = dict(enumerate(labels))
            for place, row in enumerate(rows):
                arguments = dict(zip(given, row if len(given) > 1 else (row,), strict=True))
                try:
                    with _fresh(fixtures, str(place)) as own:
                        test(**own, **arguments)
                except Exception as error:
                    mistakes.append(f"{called.get(place, arguments)}: {type(error).__name__}: {error}")
                except BaseException as error:
                    if not str(error).startswith("DID NOT RAISE"):  # a test that pytest ends
                        error.add_note(f"with {called.get(place, arguments)}")
                        raise
                    mistakes.append(f"{called.get(place, arguments)}: {error}")
            assert not mistakes, "\n".join([f"{len(mistakes)} of {len(rows)}:", *mistakes])

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
