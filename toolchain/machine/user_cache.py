"""`~/.cache/slipway`: what a user's checkouts share. Only what this user alone could write there is ever read."""

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_KEPT_SECONDS: Final = 30 * 24 * 3600
"""A built program that no checkout has taken for so long is removed when another build of it is kept."""
_OTHERS: Final = 0o022
"""The rights of others to write."""


def folder() -> Path:
    """Return the folder, which need not exist."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(home, "slipway")


def take_program(name: str, key: str, target: Path) -> bool:
    """Copy a built program to `target`, if the cache has it; return whether it has.

    `key` says what it was built of. The file's name has the SHA-256 of its content too.
    """
    prefix = f"{name}-{key}-"
    unfinished = target.with_name(f".{target.name}.new")
    try:
        _check_parents(folder())
        with _opened(os.O_RDONLY | os.O_DIRECTORY, folder()) as cache:
            names = os.listdir(cache)  # noqa: PTH208 - as it is open
            for kept in sorted(entry for entry in names if entry.startswith(prefix)):
                with _opened(os.O_RDONLY, kept, cache) as file, open(file, "rb", closefd=False) as source:
                    if _copied(source, unfinished) == kept.removeprefix(prefix):
                        unfinished.replace(target)
                        os.utime(file)
                        return True
    except OSError:
        return False
    return False


def keep_program(name: str, key: str, program: Path) -> None:
    """Keep a built program for the next checkout. A cache that cannot be written costs a build."""
    try:
        with program.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        keep(program, f"{name}-{key}-{digest}")
        for other in folder().glob(f"{name}-{'[0-9a-f]' * len(key)}-*"):
            if time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                other.unlink()
    except OSError:
        return


def keep(file: Path, name: str) -> None:
    """Keep a file under a name.

    Raises:
        OSError: the folder cannot be written, or others can rename it.
    """
    for missing in reversed([path for path in (folder(), *folder().parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    _check_parents(folder())
    with _opened(os.O_RDONLY | os.O_DIRECTORY, folder(), alone=False) as cache:
        others = os.fstat(cache).st_mode & _OTHERS
        os.fchmod(cache, 0o700)
        if others:
            for entry in os.listdir(cache):  # noqa: PTH208 - as it is open; others may have put it there
                os.unlink(entry, dir_fd=cache)
    with tempfile.NamedTemporaryFile(dir=folder(), delete=False) as temporary:
        shutil.copyfile(file, temporary.name)
    Path(temporary.name).replace(folder() / name)


def _check_parents(path: Path) -> None:
    """Refuse a path that another user can lead elsewhere between two calls, as ssh does with its keys' (StrictModes).

    In a sticky folder, such as /tmp, nobody renames what another user has.

    Raises:
        PermissionError: a folder or a link above it is another user's, or others can write there.
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

    Raises:
        OSError: it is not, or not there.
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


def _copied(source: IO[bytes], target: Path) -> str:
    """Copy a file as a program, and return the hash of the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
        shutil.copyfileobj(source, file)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target.chmod(0o755)
    return digest
