"""`~/.cache/slipway`: what a user's checkouts share. Only what this user alone could write there is ever read."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_KEPT_SECONDS: Final = 30 * 24 * 3600
"""What no checkout has taken for so long is removed when something else of its kind is kept, by default."""
_UNFINISHED_SECONDS: Final = 24 * 3600
"""What a run that was killed has left half-written is removed after so long."""
_OTHERS: Final = 0o022
"""The rights of others to write."""


def folder() -> Path:
    """Return the folder, which need not exist."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(home, "slipway")


def take_file(name: str, key: str, target: Path) -> bool:
    """Copy what was built to `target`, if the cache has it; return whether it has. `key` says what it was built of."""
    program = content(name, key)
    if program is None:
        return False
    unfinished = target.with_name(f".{target.name}.new")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
        file.write(program)
    unfinished.chmod(0o755)
    unfinished.replace(target)
    return True


def content(kind: str, key: str) -> bytes | None:
    """Return what is kept of a kind under a key; None if there is nothing. Its file's name has its SHA-256 too."""
    prefix = f"{kind}-{key}-"
    try:
        _check_parents(folder())
        with _opened(os.O_RDONLY | os.O_DIRECTORY, folder()) as cache:
            names = os.listdir(cache)  # noqa: PTH208 - as it is open
            for kept in sorted(entry for entry in names if entry.startswith(prefix)):
                with _opened(os.O_RDONLY, kept, cache) as file, open(file, "rb", closefd=False) as source:
                    read = source.read()
                    if hashlib.sha256(read).hexdigest() == kept.removeprefix(prefix):
                        os.utime(file)
                        return read
    except OSError:
        return None
    return None


def keep_file(name: str, key: str, program: Path, seconds: float = _KEPT_SECONDS) -> None:
    """Keep what was built for the next checkout, as :func:`keep_content`."""
    keep_content(name, key, program.read_bytes(), seconds)


def keep_content(kind: str, key: str, kept: bytes, seconds: float = _KEPT_SECONDS) -> None:
    """Keep a result for the next time, and remove those of its kind that nothing has taken for these seconds.

    A cache that cannot be written costs the computation.
    """
    try:
        keep(kept, f"{kind}-{key}-{hashlib.sha256(kept).hexdigest()}")
        _sweep(f"{kind}-{'[0-9a-f]' * len(key)}-*", seconds)
    except OSError:
        return


def _sweep(pattern: str, seconds: float) -> None:
    for other in folder().glob(pattern):
        with suppress(FileNotFoundError):  # another run removes them too
            if time.time() - other.stat().st_mtime > seconds:
                other.unlink()


def keep(kept: bytes, name: str) -> None:
    """Keep a file under a name. Raises OSError: the folder cannot be written, or others can rename it."""
    for missing in reversed([path for path in (folder(), *folder().parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    _check_parents(folder())
    with _opened(os.O_RDONLY | os.O_DIRECTORY, folder(), alone=False) as cache:
        others = os.fstat(cache).st_mode & _OTHERS
        os.fchmod(cache, 0o700)
        if others:
            for entry in os.listdir(cache):  # noqa: PTH208 - as it is open; others may have put it there
                os.unlink(entry, dir_fd=cache)
    _sweep(f"{tempfile.gettempprefix()}*", _UNFINISHED_SECONDS)
    temporary = tempfile.NamedTemporaryFile(dir=folder(), delete=False)  # noqa: SIM115 - it is removed on failure alone
    try:
        with temporary:
            temporary.write(kept)
        Path(temporary.name).replace(folder() / name)
    except BaseException:
        Path(temporary.name).unlink(missing_ok=True)
        raise


def _check_parents(path: Path) -> None:
    """Refuse a path that another user can lead elsewhere between two calls, as ssh does with its keys' (StrictModes).

    In a sticky folder, such as /tmp, nobody renames what another user has.

    Raises PermissionError: a folder or a link above it is another user's, or others can write there.
    """
    for parent in {*path.absolute().parents, *path.resolve().parents}:
        status = parent.lstat()
        others = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != os.getegid() else 0)
        open_to = not stat.S_ISLNK(status.st_mode) and status.st_mode & others and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in {0, os.geteuid()} or open_to:
            raise PermissionError(f"{parent}: others can write it")


@contextmanager
def _opened(flags: int, path: Path | str, within: int | None = None, *, alone: bool = True) -> Iterator[int]:
    """Open a file or folder of this user; with `alone`, only one that nobody else can write.

    Raises OSError: it is not, or not there.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    try:
        status = os.fstat(descriptor)
        plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
        if status.st_uid != os.geteuid() or (alone and status.st_mode & _OTHERS) or not plain:
            raise PermissionError(f"{path}: others can write it")
        yield descriptor
    finally:
        os.close(descriptor)
