"""The layer of the caches that a script left: regular files alone, in one order, with fixed times and owners."""

from __future__ import annotations

import inspect
import io
import posixpath
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Final, cast

from cli.warm import warm_hook
from containers.errors import SlipwayError, one_line
from containers.image.layers import layer

EPOCH: Final = 315_532_800
"""The time of all files, as in the images' other layers: `dockerfiles/common/layers/sealed`."""
_MOST_FILES: Final = 100_000
_LONGEST: Final = 255
"""Bytes of a name in a folder on Linux."""
_LONGEST_PATH: Final = 4000
"""Bytes of a path below the caches' folder. Linux knows none above 4095 bytes (PATH_MAX, path_resolution(7))."""
_MODULE: Final = "slipway_warm"
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class CachedFile:
    """A file of a cache: its path below the caches' folder, and where its content is among all contents."""

    path: str
    start: int
    size: int
    program: bool


def read(stream: IO[bytes], contents: IO[bytes], limit: int) -> list[CachedFile]:
    """Read the archive that a script's container wrote, and its files' contents to ``contents``.

    The script may have written it itself. So it is refused if it has more than ``limit`` bytes,
    or anything but regular files of a cache.

    Raises:
        SlipwayError: the archive has something else, or too much.
        BlobUnreadable: it is no archive, or is cut off.
    """
    files: dict[str, CachedFile] = {}
    folders: set[str] = set()
    start = 0
    with layer.opened(stream, "tar") as archive:
        for member in layer.members(archive):
            path = member.name
            _check(member, files)
            if start + member.size > limit or max(len(files), len(folders)) >= _MOST_FILES:
                raise SlipwayError(
                    f"the caches have more than {limit:,} bytes (slipway:warm.size) or {_MOST_FILES:,} files or folders"
                )
            _add_folders(folders, path)
            files[path] = CachedFile(path, start, member.size, bool(member.mode & 0o100))
            content = cast("IO[bytes]", archive.extractfile(member))
            while block := content.read(_BLOCK):
                contents.write(block)
            start += member.size
    if both := folders & files.keys():
        raise SlipwayError(f"the caches have '{one_line(min(both))}' as a file and as a folder")
    return [files[path] for path in sorted(files)]


def _check(member: tarfile.TarInfo, files: Iterable[str]) -> None:
    path, names = member.name, PurePosixPath(member.name).parts
    problem = ""
    if not member.isreg():
        problem = "is no regular file"
    elif names[0] not in warm_hook.CACHES or len(names) == 1 or layer.normal(path) != path:
        problem = "is in no cache"
    elif (
        not path.isprintable()
        or len(path.encode()) > _LONGEST_PATH
        or max(len(each.encode()) for each in names) > _LONGEST
    ):
        problem = "has a name that is too long or cannot be printed"
    elif any(name.startswith(".wh.") for name in names):
        problem = "has a name by which a layer removes files"
    elif path in files:
        problem = "is there twice"
    if problem:
        raise SlipwayError(f"what the script left: '{one_line(path)}' {problem}")


def _add_folders(folders: set[str], path: str) -> None:
    """Add the folders above a path, from the lowest up to one that is there: a path may have two thousand."""
    while (path := posixpath.dirname(path)) and path not in folders:
        folders.add(path)


@dataclass(frozen=True)
class LayerOwner:
    """The owner of the caches in the image, and the folder of its Python's modules.

    ``bytecode`` is that of :mod:`cli.warm.warm_hook`: how its file's name ends, and its content. It is empty after a
    script has run in the container: its answer is not trusted then.
    """

    uid: int
    gid: int
    modules: str
    bytecode: tuple[str, bytes] = ("", b"")


def write(
    files: Sequence[CachedFile],
    contents: IO[bytes],
    target: IO[bytes],
    key: str,
    machine: Sequence[str],
    owner: LayerOwner,
) -> None:
    """Write the archive of a layer, with the caches below a folder ``key`` and the module that chooses among folders.

    Equal files give equal bytes.
    """
    root = warm_hook.ROOT.strip("/")
    below, modules = f"{root}/{key}", owner.modules.strip("/")
    own: set[str] = set()
    for file in files:
        _add_folders(own, file.path)
    tag, bytecode = owner.bytecode
    texts = {
        f"{below}/fits": "".join(f"{line}\n" for line in machine).encode(),
        f"{modules}/{_MODULE}.py": inspect.getsource(warm_hook).encode(),
        f"{modules}/{_MODULE}.pth": f"import {_MODULE}; {_MODULE}.safely()\n".encode(),
        **({f"{modules}/__pycache__/{_MODULE}.{tag}.pyc": bytecode} if bytecode else {}),
    }
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:

        def add(path: str, mode: int, *, size: int | None = None, cache: bool = False) -> tarfile.TarInfo:
            member = tarfile.TarInfo(path)
            member.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
            member.size, member.mode, member.mtime = size or 0, mode, EPOCH
            if cache:
                member.uid, member.gid = owner.uid, owner.gid
            return member

        for folder in (posixpath.dirname(root), root, below):
            archive.addfile(add(folder, 0o755))
        for folder in sorted(own):
            archive.addfile(add(f"{below}/{folder}", 0o755, cache=True))
        for path, text in texts.items():
            archive.addfile(add(path, 0o644, size=len(text)), io.BytesIO(text))
        for file in files:
            contents.seek(file.start)
            mode = 0o755 if file.program else 0o644
            archive.addfile(add(f"{below}/{file.path}", mode, size=file.size, cache=True), contents)
