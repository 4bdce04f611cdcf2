"""Objects that several tests share, each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def once(make: Callable[..., T], remove: Callable[[T], None]) -> Iterator[Callable[..., T]]:
    """Yield a function that calls ``make`` once for each set of arguments; ``remove`` gets all results at the end."""
    results: dict[str, T] = {}

    def get(*args: Any, **more: Any) -> T:
        key = f"{args} {more}"
        if key not in results:
            results[key] = make(*args, **more)
        return results[key]

    try:
        yield get
    finally:
        for result in results.values():
            remove(result)
