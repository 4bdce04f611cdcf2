"""The archive in a wheel with all that a repository of one's own needs of Slipway's code.

It is one file, so that nothing in it is a package of whoever installs the wheel. Links and modes stay as git has them.
"""

import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment

_GIT_SECONDS: Final = 60
NAME: Final = "release.tar.gz"
"""The archive beside the launcher."""
FOLDERS: Final = ("ci", "cli", "components", "containers", "dockerfiles", "policies", "scaler", "stacks", "toolchain")
FILES: Final = ("__main__.py", "slipway.py", "pyproject.toml", "LICENSE")
LOCK: Final = "requirements.run.lock"
"""What an environment needs to run Slipway; in the archive it is the lock."""


def _paths(root: Path) -> Iterator[Path]:
    """Yield the files and links of the archive, in one order: of a checkout those that git has."""
    paths = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    if (root / ".git").exists():  # what else lies there may be a virtual environment, or somebody's secret
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", *FOLDERS],
            env=child_environment("git"),
            check=True,
            stdout=subprocess.PIPE,
            timeout=_GIT_SECONDS,
        )
        paths = (root / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
    for path in sorted(paths):
        is_ours = path.parent == root / "stacks" and (path.name == "lock.toml" or path.suffix == ".yaml")
        if "__pycache__" not in path.parts and not is_ours and (path.is_symlink() or path.is_file()):
            yield path
    yield from (root / name for name in FILES)


def archive(root: Path) -> bytes:
    """Return the archive of a checkout: the same bytes for the same files."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, name in [
            *((path, path.relative_to(root).as_posix()) for path in _paths(root)),
            (root / LOCK, "requirements.lock"),
        ]:
            member = tar.gettarinfo(path, name)
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            if member.isreg():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
    return buffer.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Unpack the archive of a release, whose programs run next, into a new folder."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.2 has none
        tar.extractall(folder)  # noqa: S202 - a release's own, which pip would install
