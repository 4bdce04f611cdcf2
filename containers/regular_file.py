"""A file in a folder that somebody else wrote, such as the artifact of a job: a regular one, and no link to another."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO


def opened(folder: Path, name: str) -> IO[bytes]:
    """Open a regular file of a folder for reading. Neither is followed where it is a link.

    Raises OSError: it is not there, or is something else.
    """
    within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
    finally:
        os.close(within)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")
