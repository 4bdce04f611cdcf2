"""What was pushed of layers: the blob of each archive, remembered on this machine, so that it is compressed once.

A record is trusted no further than it reaches: it has a checksum of its own, the registry must have a blob of that
digest and size, and it counts for one level and one version of the library. Whoever can write it is the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from containers.blob import DIGEST
from containers.errors import MALFORMED

FOLDER: Final = Path(".slipway/layers")
"""The folder of the records, in the checkout."""


@dataclass(frozen=True)
class PushedBlob:
    """A blob: its digest, its size in bytes, and the repositories that it was pushed to, the newest last."""

    digest: str
    size: int
    repositories: tuple[str, ...] = ()


class PushedLayers:
    """The records of blobs by one ``method`` of compression, in a ``folder`` that need not exist."""

    def __init__(self, folder: Path, method: str) -> None:
        self._folder, self._method = folder, method

    def blob(self, content: str) -> PushedBlob | None:
        """Return the blob of a content, which is named by its digest; None if none is known."""
        try:
            record = json.loads(self._file(content).read_bytes())
            blob = PushedBlob(str(record["digest"]), int(record["size"]), tuple(map(str, record["repositories"])))
            valid = record["sum"] == self._sum(content, blob) and DIGEST.fullmatch(blob.digest)
        except (OSError, *MALFORMED):
            return None
        return blob if valid else None

    def add(self, content: str, blob: PushedBlob, repository: str) -> None:
        """Remember that a repository has the blob of a content. A record that cannot be written is left out."""
        known = self.blob(content)
        before: Sequence[str] = known.repositories if known and known.digest == blob.digest else ()
        names = [*(name for name in before if name != repository), repository]
        blob = replace(blob, repositories=tuple(names[-_MOST_REPOSITORIES:]))
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, path = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(descriptor, "w") as file:
                json.dump({**asdict(blob), "sum": self._sum(content, blob)}, file)
            Path(path).replace(self._file(content))

    def _file(self, content: str) -> Path:
        return self._folder / f"{content.removeprefix('sha256:')}-{self._method}.json"

    def _sum(self, content: str, blob: PushedBlob) -> str:
        # Records of version 1 may have a manifest for a configuration, of an engine with containerd's store.
        return hashlib.sha256(json.dumps([2, content, self._method, asdict(blob)]).encode()).hexdigest()


_MOST_REPOSITORIES = 8
"""Repositories in a record; a base image's layers may be in many."""
