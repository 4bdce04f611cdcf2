"""The build context: which files belong to an image.

The rules are Docker's own: a builder receives these files, and the docker provider hashes them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from containers.dockerfile.ignore import Matched, Matcher, PatternError, join, parse
from containers.errors import SlipwayError

IGNORE = ".dockerignore"
"""The name of a context's ignore file; after a Dockerfile's name, that of the Dockerfile's own ignore file."""

MOST_LINKS: Final = 40
"""The most links that Linux follows in one path (path_resolution(7))."""

CAPABILITY: Final = "security.capability"
"""The attribute with the capabilities of a file, such as what lets `ping` open raw sockets."""


@dataclass(frozen=True)
class ContextEntry:
    """One file or directory of a context.

    Attributes:
        path: relative to the context, slash-separated.
        source: its path on disk.
        status: its lstat.
    """

    path: str
    source: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory (a link to one is not)."""
        return stat.S_ISDIR(self.status.st_mode)


def ignore_patterns(context: str, dockerfile: str) -> list[str]:
    """Return the patterns of a build's ignore file: `<Dockerfile>.dockerignore`, else the context's `.dockerignore`.

    Raises:
        SlipwayError: the file exists and cannot be read.
    """
    for path in (dockerfile + IGNORE, join(context, IGNORE)):
        try:
            return parse(Path(path).read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SlipwayError(f'reading "{path}": {error.strerror}') from error
        except PatternError as error:
            raise SlipwayError(f'unable to parse "{path}": {error}') from error
    return []


def walk(root: str, ignored: Matcher) -> Iterator[ContextEntry]:
    """Yield the entries of a context, each directory before its contents, sorted by name.

    An ignored directory is yielded only if an exception includes something in it.

    Args:
        root: the context; the path's last part is no link.
        ignored: the patterns of ignored files.

    Raises:
        OSError: a directory that is not ignored cannot be read.
    """
    tops = ignored.tops()
    yield from _walk(root, "", ignored, (), [], os.listdir(root) if tops is None else tops)  # noqa: PTH208


def _walk(
    directory: str, prefix: str, ignored: Matcher, above: Matched, pending: list[ContextEntry], names: Iterable[str]
) -> Iterator[ContextEntry]:
    """Walk one directory; `pending` are the ignored directories above that have not been yielded yet."""
    for name in sorted(names, key=os.fsencode):
        path, source = prefix + name, f"{directory}/{name}"
        skip, matched = ignored.match(path, above)
        try:
            entry = ContextEntry(path, source, os.lstat(source))
        except FileNotFoundError:
            continue  # removed since the directory was listed
        if not skip:
            yield from pending
            pending.clear()
            yield entry
        if not entry.is_directory or (skip and ignored.prunes(path)):
            continue
        if skip:
            pending.append(entry)
        try:
            yield from _walk(source, path + "/", ignored, matched, pending, os.listdir(source))  # noqa: PTH208
        except PermissionError:
            if not skip:
                raise
        if pending and pending[-1] is entry:
            pending.pop()


class Context(Protocol):
    """A build context: a folder, or a commit's archive of one."""

    def paths(self, dockerfile: str) -> Sequence[str]:
        """Return the files and links that a Dockerfile's build may read, sorted; folders are not listed.

        Raises:
            SlipwayError: the ignore file cannot be understood, or a folder cannot be read.
        """

    def read(self, path: str) -> bytes:
        """Return a file's content. Raises SlipwayError: there is no such file."""

    def digest(self, path: str) -> str:
        """Return the SHA-256 of what git keeps of a file, in hexadecimal; see :func:`digest`.

        So it is the same in every clone, whatever the umask.

        Raises:
            SlipwayError: the file cannot be read.
        """

    def link(self, path: str) -> str | None:
        """Return where a symbolic link leads, as it is written; None for a path that is none."""


class Folder:
    """The build context in a folder. What is read is kept: a folder that changes needs a new object.

    ``whole`` has all that an engine copies, beside git's files: all bits of a mode, and folders of their own.
    """

    def __init__(self, root: Path, *, whole: bool = False) -> None:
        self._root, self._whole = root, whole
        self._paths: dict[str, Sequence[str]] = {}
        self._entries: dict[str, ContextEntry] = {}
        self._digests: dict[str, str] = {}

    def paths(self, dockerfile: str) -> Sequence[str]:
        """See :meth:`Context.paths`."""
        if dockerfile not in self._paths:
            main = self._root / dockerfile
            if not main.is_file():
                raise no_dockerfile(main)
            try:
                ignored = Matcher(ignore_patterns(str(self._root), str(main)))
                entries = {it.path: it for it in walk(str(self._root), ignored) if self._whole or not it.is_directory}
            except (OSError, PatternError) as error:
                raise self._unreadable(error) from error
            self._entries |= entries
            self._paths[dockerfile] = sorted(entries)
        return self._paths[dockerfile]

    def read(self, path: str) -> bytes:
        """See :meth:`Context.read`."""
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise no_dockerfile(self._root / path) from None
        except OSError as error:
            raise self._unreadable(error) from error

    def digest(self, path: str) -> str:
        """See :meth:`Context.digest`."""
        if path not in self._digests:
            try:
                self._digests[path] = _digest(self._entries[path], whole=self._whole)
            except OSError as error:
                raise self._unreadable(error) from error
        return self._digests[path]

    def link(self, path: str) -> str | None:
        """See :meth:`Context.link`."""
        entry = self._entries.get(path)
        return os.readlink(entry.source) if entry and stat.S_ISLNK(entry.status.st_mode) else None  # noqa: PTH115 - as it is written

    def _unreadable(self, error: Exception) -> SlipwayError:
        return SlipwayError(f"{self._root}: the files of the build context cannot be read: {error}")


def no_dockerfile(path: Path | str) -> SlipwayError:
    """Return the error about a missing Dockerfile."""
    return SlipwayError(
        f"{path}: there is no such Dockerfile; create it, or correct `dockerfile`, in its flavor or in slipway:images"
    )


def capability(path: str) -> bytes:
    """Return the capabilities of a file, as engines take them from a context; empty if it has none.

    Docker's own client sends no other attribute of a file, and leaves out the owner of the namespace that the third
    revision has (moby/go-archive v0.1.0, archive.go:268, `ReadSecurityXattrToTarHeader`). BuildKit's key has them too
    (moby/buildkit 73ed682, cache/contenthash/tarsum.go:53).
    """
    try:
        value = os.getxattr(path, CAPABILITY)
    except (OSError, AttributeError):
        return b""  # it has none, or its system has no attributes
    return value[:3] + b"\2" + value[4:20] if value[3] == 3 else value


def digest(content: bytes, *, executable: bool = False, link: bool = False) -> str:
    """Return the SHA-256 of what git keeps of a file; for a link, ``content`` is the target."""
    kind = b"link" if link else b"executable" if executable else b"file"
    return hashlib.sha256(kind + b"\0" + content).hexdigest()


_POINTER: Final = re.compile(
    rb"version (?:https://(?:git-lfs|hawser)\.github\.com/spec/v1|http://git-media\.io/v/2)\n"
    rb"(?:[a-z0-9.-]+ .+\n)*oid sha256:([0-9a-f]{64})\nsize [0-9]+\n"
)
_LONGEST_POINTER: Final = 1023
"""Bytes."""


def lfs_object(content: bytes) -> str | None:
    """Return the SHA-256 of what a pointer of Git LFS stands for, in hexadecimal; None for another file.

    git-lfs/git-lfs af13aa8f, docs/spec.md:20-55 and lfs/pointer.go:21.
    """
    match = _POINTER.fullmatch(content) if len(content) <= _LONGEST_POINTER else None
    return match and match[1].decode()


def _digest(entry: ContextEntry, *, whole: bool) -> str:
    mode = entry.status.st_mode
    if stat.S_ISLNK(mode):
        return digest(os.fsencode(Path(entry.source).readlink()), link=True)
    if not (stat.S_ISREG(mode) or entry.is_directory):
        raise OSError(f"{entry.source} is no file, folder or link; a build cannot take it")
    content = b"" if entry.is_directory else Path(entry.source).read_bytes()
    if whole:
        rights = b"" if entry.is_directory else capability(entry.source)
        return hashlib.sha256(b"%o%s\0%s" % (mode, rights and b" " + rights.hex().encode(), content)).hexdigest()
    if lfs_object(content):
        raise SlipwayError(
            f"{entry.source}: this is a pointer of Git LFS, and the build would get it in place of the file: run "
            "`git lfs pull`, in a workflow give actions/checkout `lfs: true`, or name it in the ignore file"
        )
    return digest(content, executable=bool(mode & stat.S_IXUSR))
