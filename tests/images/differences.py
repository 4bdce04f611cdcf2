"""What two images differ in: their files and variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import Any

from tests.images.engine import Image

DATABASE = ("/var/lib/dpkg/*", "/var/lib/apt/*", "/var/cache/*", "/etc/ld.so.cache")
"""What any package changes."""

RUNTIME = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
"""What the engine puts into a container."""


def files(image: Image) -> dict[str, str]:
    """Return an image's files with their content, and its links with where they lead."""
    script = (
        r"find / -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type l -printf '%p\t%l\n' && "
        r"find / -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type f -print0 | xargs -0 sha256sum | "
        r"sed -E 's/^([0-9a-f]{64})  (.*)$/\2\t\1/'"
    )
    rows = (line.rpartition("\t") for line in image.run("sh", "-c", script, options=("--user=root",)).splitlines())
    return {path: description for path, _, description in rows if path not in RUNTIME}


def environment(image: Image) -> dict[str, str]:
    """Return the variables that an image sets."""
    return dict(entry.split("=", 1) for entry in image.config()["Config"]["Env"])


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the keys that only one has, or that stand for different values."""
    return {key for key in {**before, **after} if before.get(key) != after.get(key)}


def variables(before: Image, after: Image) -> dict[str, str | None]:
    """Return the variables that ``after`` sets otherwise than ``before``: None for one that it does not set."""
    ours = environment(after)
    return {name: ours.get(name) for name in changed(environment(before), ours)}


def unlisted(paths: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """Return the paths that no pattern names, nor is changed by any package."""
    named = (*patterns, *DATABASE)
    return {path for path in paths if not any(fnmatch(path, pattern) for pattern in named)}


def check_differ(before: Image, after: Image, patterns: Iterable[str], listed: Mapping[str, str]) -> None:
    """Check that two images differ in files of each of these patterns and no other, and in these variables."""
    differing, patterns = changed(files(before), files(after)), list(patterns)
    more = unlisted(differing, patterns)
    assert not more, f"files that differ and are not listed: {sorted(more)}"
    unchanged = [pattern for pattern in patterns if not any(fnmatch(path, pattern) for path in differing)]
    assert not unchanged, f"listed, but the same: {unchanged}"
    set_otherwise = variables(before, after)
    assert set_otherwise == listed, f"variables that differ: {set_otherwise}"
