"""Answers kept between runs, each in a file named after its question; losing them costs time only."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Cache:
    """A folder ``.slipway/cache/<name>`` of the checkout; where it cannot be written nothing is kept."""

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / ".slipway" / "cache" / name

    def get(self, question: object, answer: Callable[[], T]) -> T:
        """Return the kept answer to a question, or ask for it and keep it; both must be JSON."""
        key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:32]
        path = self._folder / f"{key}.json"
        try:
            kept: T = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            kept = answer()
            self._keep(path, kept)
        return kept

    def _keep(self, path: Path, value: object) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=path.name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file)
            Path(name).replace(path)
        except OSError:
            return
