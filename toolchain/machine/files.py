"""Writing files so that an interruption leaves the old one or the new one, never a half."""

import os
from pathlib import Path


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a text file through a temporary name, with permissions `mode`. Leaves a file with that text alone."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    temporary.replace(path)
