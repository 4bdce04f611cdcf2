"""Writing files so that an interruption leaves the old one or the new one, never a half."""

import os
import stat
from collections.abc import Collection
from pathlib import Path


def temporary(path: Path) -> Path:
    """Return the name under which a file is written."""
    return path.with_name(f".{path.name}.new")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a text file through a temporary name, with permissions `mode`. Leaves a file with that text alone."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = temporary(path)
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    fresh.replace(path)


def close(folder: Path, *, open_folders: Collection[str], closed_folders: Collection[str]) -> None:
    """Keep what is in a folder from other users: they can pass it, and list or read nothing but ``open_folders``.

    ``closed_folders`` are made, so that no file is in one before it is closed. Nobody else can write anywhere, nor to
    what this process and its programs write from now on, whatever the umask is.
    """
    os.umask(os.umask(stat.S_IRWXO) | stat.S_IWOTH)
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    for name in closed_folders:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    for path in (folder, *folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        allowed = 0o711 if path == folder else 0o775 if path.name in open_folders else 0o700
        if stat.S_IMODE(mode) & ~allowed:
            path.chmod(stat.S_IMODE(mode) & allowed)
