"""What an export writes: beside its place first, and put there in one step once it is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from cli.diff.report import size
from stacks.errors import SlipwayError, one_line

CHUNK: Final = 1 << 20
"""Bytes that are copied at once."""


class Unwritten(Exception):
    """An export cannot be written, for a ``reason``; no OSError, which may as well be a registry's."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@contextmanager
def beside(output: Path, *, force: bool, ours: Callable[[Path], bool] = Path.is_file) -> Iterator[Path]:
    """Give a path to write a file or a folder to, which takes the place of ``output`` when the block ends.

    Where the block fails or is interrupted nothing of it stays, and what stood at ``output`` stands there still; only a
    second interruption may leave the hidden folder beside it. Something that stands there is replaced with ``force``
    only, and only if it is ``ours`` to replace: the like of an export.

    Raises:
        SlipwayError: something stands there, nothing can be written there, or the disk is full.
    """
    output = Path(os.path.abspath(output))  # noqa: PTH100 - a link there is to be seen, not followed
    _check(output, force, ours)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
        new, old = scratch / "new", scratch / "old"
        try:
            yield new
            _check(output, force, ours)
            if output.is_dir():
                output.rename(old)  # a folder cannot be replaced in one step
            new.rename(output)
        finally:
            # A signal may come just as a rename returns, this one too: nothing is removed before something is in place.
            if old.exists() and not output.exists():
                old.rename(output)
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise _refused(output, error) from None
    except Unwritten as error:
        raise _refused(output, error.reason) from None


def _check(output: Path, force: bool, ours: Callable[[Path], bool]) -> None:
    if not output.parent.is_dir():
        raise SlipwayError(f"{_shown(output)}: there is no folder {_shown(output.parent)}; make it first")
    if not (output.exists() or output.is_symlink()):
        return
    if output.is_symlink() or not ours(output):
        raise SlipwayError(
            f"{_shown(output)}: is something else than such an export, which is not replaced; name another"
        )
    if not force:
        raise SlipwayError(f"{_shown(output)}: is there already; name another, or replace it with --force")


def check_space(output: Path, needed: int) -> None:
    """Refuse what the disk of ``output`` cannot hold, before an hour is spent on it.

    Raises:
        SlipwayError: fewer than ``needed`` bytes are free.
    """
    with contextlib.suppress(OSError):  # whoever writes there says what is wrong with it
        free = shutil.disk_usage(output.parent).free
        if free < needed:
            raise SlipwayError(f"{_shown(output)}: needs {size(needed)}, and its disk has {size(free)} left")


def copy(stream: IO[bytes], file: IO[bytes]) -> int:
    """Copy a stream to its end; return how many bytes it had.

    Raises:
        Unwritten: the file cannot be written. What fails in reading is the stream's own error.
    """
    copied = 0
    while chunk := stream.read(CHUNK):
        _written(file, chunk)
        copied += len(chunk)
    return copied


def _written(file: IO[bytes], chunk: bytes) -> None:
    try:
        file.write(chunk)
        file.flush()  # or it would fail where the file is closed
    except OSError as error:
        raise Unwritten(error) from None


def _refused(output: Path, error: OSError) -> SlipwayError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return SlipwayError(f"{_shown(output)}: no space is left on its disk; nothing of it was kept")
    return SlipwayError(f"{_shown(output)}: cannot be written: {error.strerror}")


def _shown(path: Path) -> str:
    return one_line(str(path))
