"""Results kept between runs, each in a file named after its key. They can be deleted: a run then takes longer."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_MOST: Final = 256
"""Files that a folder holds; one of a commit's specs has about 160 KB."""


class Cache:
    """A folder ``.slipway/cache/<name>`` of the checkout. If it cannot be written, nothing is kept."""

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / ".slipway" / "cache" / name

    def get(self, key: object, compute: Callable[[], T], keep: Callable[[T], bool] = bool) -> T:
        """Return the value kept under a key, or compute it and keep it; key and value must be JSON.

        ``keep`` says whether a computed value is kept. By default, empty values are not, because a passing failure may
        be their cause.
        """
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        path = self._folder / f"{name}.json"
        try:
            value: T = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            value = compute()
            if keep(value):
                self._write(path, value)
        return value

    def _write(self, path: Path, value: object) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=path.name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file)
            Path(name).replace(path)
            self._prune()
        except OSError:
            return

    def _prune(self) -> None:
        """Remove the oldest half of a folder that has become too full."""
        files = list(self._folder.iterdir())
        if len(files) > _MOST:
            for file in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) - _MOST // 2]:
                file.unlink(missing_ok=True)
