"""What several tests use, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def once(make: Callable[..., T], remove: Callable[[T], None]) -> Iterator[Callable[..., T]]:
    """Give what makes a thing the first time that it is asked for with these arguments; all are removed at the end."""
    made: dict[str, T] = {}

    def get(*args: Any, **more: Any) -> T:
        key = f"{args} {more}"
        if key not in made:
            made[key] = make(*args, **more)
        return made[key]

    try:
        yield get
    finally:
        for thing in made.values():
            remove(thing)
