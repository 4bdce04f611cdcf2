"""Which files of the build context belong to an image."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path


def files(root: Path, dockerfile: str) -> dict[str, str]:
    patterns = []
    ignore = root / f"{dockerfile}.dockerignore"
    if ignore.is_file():
        for line in ignore.read_text().splitlines():
            line = line.strip()
            if line and not line.startswith("#"):
                negated = line.startswith("!")
                patterns.append((negated, _regex(line.lstrip("!").strip("/"))))
    result = {}
    for folder, dirs, names in os.walk(root):
        dirs.sort()
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(root).as_posix()
            ignored = False
            for negated, regex in patterns:
                if regex.match(path):
                    ignored = not negated
            if not ignored or path == dockerfile:
                data = (Path(folder) / name).read_bytes()
                result[path] = hashlib.sha256(data).hexdigest()
    return result


def _regex(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    return re.compile(rf"{text}(/.*)?$")
