"""One test for many values, whose failure lists those that it fails with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def every(names: str, values: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Callable[..., None]], Any]:
    """Have a test run with each of some values, as one case.

    It is for values that need nothing of their own: no folder, and no patch that stays. What takes long to find is given as
    a function, so that nothing is done while tests are collected.

    Args:
        names: the test's parameters for a value, separated by commas.
        values: a value for each run, or a tuple of them where there are several names.
    """
    given = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def runs(**fixtures: Any) -> None:
            rows = list(values() if callable(values) else values)
            assert rows, f"no value for {names}"
            mistakes: list[str] = []
            for row in rows:
                arguments = dict(zip(given, row if len(given) > 1 else (row,), strict=True))
                try:
                    test(**fixtures, **arguments)
                except Exception as error:
                    mistakes.append(f"{arguments}: {type(error).__name__}: {error}")
                except BaseException as error:  # a test that pytest ends
                    error.add_note(f"with {arguments}")
                    raise
            assert not mistakes, "\n".join([f"{len(mistakes)} of {len(rows)}:", *mistakes])

        whole = inspect.signature(test)
        left = [parameter for name, parameter in whole.parameters.items() if name not in given]
        runs.__signature__ = whole.replace(parameters=left)  # type: ignore[attr-defined]
        return runs

    return decorate
