"""The needs of an image's files over all processes that they are part of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator


class Needs:
    """The needs of a library, met or not met: files by path, in the order of processes.

    A need is a file, by path, and the name of what it needs.
    """

    def __init__(self) -> None:
        self.met: set[tuple[str, str]] = set()
        self._by_programs: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._by_libraries: dict[tuple[str, str], list[str]] = defaultdict(list)

    def missed(self, key: tuple[str, str], root: str, *, program: bool) -> None:
        """Note that the process of a file, or of a program, does not meet a need."""
        (self._by_programs if program else self._by_libraries)[key].append(root)

    def unmet(self) -> Iterator[tuple[tuple[str, str], list[str]]]:
        """Yield each unmet need of a program, or of every process, and the files that load it."""
        for key in {**self._by_programs, **self._by_libraries}:
            if key in self._by_programs or key not in self.met:
                yield key, [*self._by_programs.get(key, []), *self._by_libraries.get(key, [])]
