"""The space of an image's files, and the part that serves nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from containers.image.layers.file_tree import FileTree
from containers.image.layers.layer import Entry, LayerIndex

HIDDEN: Final = "replaced or removed by a later layer"
"""Whoever pulls the image gets these files, and no container sees them."""

_KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    # apt-get(8), `clean`; dnf.conf(5), `cachedir`; XDG Base Directory Specification, `XDG_CACHE_HOME`; `conda clean`.
    "caches of package managers": re.compile(
        r"var/cache/apt/(archives/.*\.deb|\w*pkgcache\.bin)|var/lib/apt/lists/.+|var/cache/(dnf|yum|libdnf5)/.+"
        r"|(root|home/[^/]+)/\.cache/.+|opt/(conda|miniconda|miniforge)\d?/pkgs/.+"
    ),
    "static libraries": re.compile(r".*\.a"),
    # GDB's manual, "Debugging Information in Separate Files".
    "debug symbols": re.compile(r"usr/lib/debug/.+|.*\.debug"),
}
"""Files that a running container does not need, by the whole path; a path is of the first kind that has it."""


@dataclass(frozen=True)
class Space:
    """The space of an image, unpacked, in bytes.

    ``total`` is that of all its layers. ``unneeded`` has the files that take it for nothing, by kind and path. A file
    with several names counts once.
    """

    total: int = 0
    unneeded: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the space as JSON; of each kind the bytes and the files, the largest first."""
        kinds = {
            kind: {"bytes": sum(files.values()), "files": dict(sorted(files.items(), key=lambda file: -file[1]))}
            for kind, files in self.unneeded.items()
        }
        return {"bytes": self.total, "unneeded": kinds}


def space(layers: Sequence[LayerIndex], tree: FileTree) -> Space:
    """Return the space of stacked layers; ``tree`` has the files that a container sees.

    Of a file with several names, the first one in its layer counts. It is hidden if all of them are.
    """
    hidden = {(place, path): entry for place, path, entry in tree.hidden if _size(entry)}
    still_named = {
        (place, first)
        for place, layer in enumerate(layers)
        for name, first in layer.links.items()
        if (place, name) not in hidden
    }
    unneeded: dict[str, dict[str, int]] = {}
    for (place, path), entry in hidden.items():
        if path not in layers[place].links and (place, path) not in still_named:
            _add(unneeded, HIDDEN, path, entry)
    total = 0
    for place, layer in enumerate(layers):
        for path, entry in layer.entries.items():
            if not _size(entry) or path in layer.links:
                continue
            total += entry.size
            is_visible = (place, path) not in hidden or (place, path) in still_named
            if is_visible and (kind := _kind(path)):
                _add(unneeded, kind, path, entry)
    return Space(total, unneeded)


def _size(entry: Entry) -> int:
    return entry.size if entry.kind == "file" else 0


def _add(unneeded: dict[str, dict[str, int]], kind: str, path: str, entry: Entry) -> None:
    files = unneeded.setdefault(kind, {})
    files[path] = files.get(path, 0) + entry.size


def _kind(path: str) -> str:
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(path)), "")
