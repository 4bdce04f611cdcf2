"""``stacks/lock.toml``: the digests of the parents that others publish, by the name under which they are pulled.

A parent that the lock has is built on by digest, so that a tag that moves upstream changes nothing until
``python -m stacks lock`` is run and its change committed; then a preview shows it. A mirror's images are locked under
the mirror's name: it may hold other builds of them.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from stacks.config import Mirrors
from stacks.errors import SlipwayError
from stacks.model import qualified
from stacks.spec import ImageSpec, Outside

_FILE = "stacks/lock.toml"
_HEADER = "# Digests of the parents that others publish. Written by `python -m stacks lock`; do not edit.\n"


def path(root: Path) -> Path:
    """Return where the lock of a checkout is; it need not exist."""
    return root / _FILE


def read(root: Path) -> Mapping[str, str]:
    """Return the locked digests by qualified reference, such as ``docker.io/nvidia/cuda:12.1.1-base-ubuntu20.04``.

    Raises:
        SlipwayError: the file is not what ``lock`` writes.
    """
    try:
        text = path(root).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return _parsed(text)


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Mapping[str, str]:
    try:
        locked = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SlipwayError(f"{_FILE}: {error}; run python -m stacks lock to write it anew") from None
    return locked


def write(root: Path, locked: Mapping[str, str]) -> None:
    """Write the lock, sorted, in one step."""
    lines = (f"{json.dumps(name)} = {json.dumps(digest)}\n" for name, digest in sorted(locked.items()))
    fresh = path(root).with_suffix(".new")
    fresh.write_text(_HEADER + "".join(lines), encoding="utf-8")
    fresh.replace(path(root))


def pulled(spec: ImageSpec, mirrors: Mirrors) -> dict[str, str]:
    """Return the qualified references of a spec's outside parents that name a tag and no digest, by argument."""
    return {
        argument: qualified(mirrors.image(parent.reference))
        for argument, parent in spec.parents.items()
        if isinstance(parent, Outside) and re.fullmatch(r"[^@]*:[^/@]+", parent.reference)
    }


def pinned(specs: Iterable[ImageSpec], mirrors: Mirrors, locked: Mapping[str, str]) -> list[ImageSpec]:
    """Return the specs with the digest of every outside parent that the lock has."""
    result = []
    for spec in specs:
        digests = {argument: locked.get(name) for argument, name in pulled(spec, mirrors).items()}
        parents = {
            argument: parent.model_copy(update={"digest": digests[argument]}) if digests.get(argument) else parent
            for argument, parent in spec.parents.items()
        }
        result.append(spec.model_copy(update={"parents": parents}) if any(digests.values()) else spec)
    return result
