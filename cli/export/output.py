"""The output of an export: written under a temporary name, and renamed when it is complete."""

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

from containers.errors import SlipwayError, one_line
from containers.image.node_pull import size

CHUNK: Final = 1 << 20
"""Bytes copied at once."""


class WriteFailed(Exception):
    """An export cannot be written. It is not an OSError, which a download can raise too."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@contextmanager
def replacing(output: Path, *, force: bool, replaceable: Callable[[Path], bool] = Path.is_file) -> Iterator[Path]:
    """Yield a temporary path for a file or folder, which is renamed to ``output`` when the block ends.

    If the block fails or is interrupted, an existing output stays and the temporary path is removed; only a second
    interruption may leave it, as a hidden folder. An existing output is replaced only with ``force`` and if it is
    ``replaceable``: an earlier export.

    Raises SlipwayError: the output exists, cannot be written, or the disk is full.
    """
    output = Path(os.path.abspath(output))  # noqa: PTH100 - resolve() would follow a link
    _check(output, force, replaceable)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
        new, old = scratch / "new", scratch / "old"
        try:
            yield new
            _check(output, force, replaceable)
            if output.is_dir():
                output.rename(old)  # a folder cannot be replaced in one step
            new.rename(output)
        finally:
            # A signal may arrive right after any rename: restore the old output before anything is removed.
            if old.exists() and not output.exists():
                old.rename(output)
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise _error(output, error) from None
    except WriteFailed as error:
        raise _error(output, error.reason) from None


def _check(output: Path, force: bool, replaceable: Callable[[Path], bool]) -> None:
    if not output.parent.is_dir():
        raise SlipwayError(f"{_quoted(output)}: no folder {_quoted(output.parent)}; create it first")
    if not (output.exists() or output.is_symlink()):
        return
    if output.is_symlink() or not replaceable(output):
        raise SlipwayError(f"{_quoted(output)}: exists and is not what this command writes; choose another output")
    if not force:
        raise SlipwayError(f"{_quoted(output)}: exists; choose another output, or replace it with --force")


def check_space(output: Path, needed: int) -> None:
    """Check the free space on the disk of ``output``, before an hour is spent on it.

    Raises SlipwayError: fewer than ``needed`` bytes are free.
    """
    with contextlib.suppress(OSError):  # writing reports the error
        free = shutil.disk_usage(output.parent).free
        if free < needed:
            raise SlipwayError(f"{_quoted(output)}: needs {size(needed)}, but its disk has {size(free)} free")


def copy(stream: IO[bytes], file: IO[bytes]) -> int:
    """Copy a stream to its end; return its number of bytes.

    Raises WriteFailed: the file cannot be written. Errors of reading are the stream's own.
    """
    copied = 0
    while chunk := stream.read(CHUNK):
        _write(file, chunk)
        copied += len(chunk)
    return copied


def _write(file: IO[bytes], chunk: bytes) -> None:
    try:
        file.write(chunk)
        file.flush()  # or the error would appear when the file is closed
    except OSError as error:
        raise WriteFailed(error) from None


def _error(output: Path, error: OSError) -> SlipwayError:
    reason, full = error.strerror, {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    if isinstance(error, shutil.Error):  # of copytree: each file's source, its target, and its error as text
        reason = str(error.args[0][0][2])
    if error.errno in full or any(os.strerror(number) in str(reason) for number in full):
        return SlipwayError(f"{_quoted(output)}: no space left on its disk; nothing was kept")
    return SlipwayError(f"{_quoted(output)}: cannot be written: {reason}")


def _quoted(path: Path) -> str:
    return one_line(str(path))
