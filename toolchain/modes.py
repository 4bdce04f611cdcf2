"""The modes of what goes into images: those of git's records, not those of this machine's umask."""

import os
import stat
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout

CONTEXT: Final = "dockerfiles"
"""The folder that is every image's build context."""


def _normalize(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return
    mode_in_git = 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644
    if stat.S_IMODE(mode) != mode_in_git:
        path.chmod(mode_in_git)


def normalize(checkout: Checkout) -> None:
    """Give every file of the build context the mode 0644, or 0755 where its owner may run it, and 0755 to folders.

    A builder takes modes into the image: from a clone made under umask 077 its user could read nothing, and every other
    umask would give another digest.
    """
    for folder, _, names in os.walk(checkout.code / CONTEXT):
        _normalize(Path(folder))
        for name in names:
            _normalize(Path(folder) / name)
