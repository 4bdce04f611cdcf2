"""The build context: its files, and the digest that shows a change.

The digest is the official provider's, to the byte, so that state written under one provider is clean under the other.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
import threading
import time
from pathlib import PurePosixPath

from containers.dockerfile.context import ignore_patterns, walk
from containers.dockerfile.ignore import Matcher, PatternError, clean, join
from containers.errors import SlipwayError

_SETTLED_SECONDS = 0.1
"""A file changed less than this before it was read is read again next time: the kernel's clock ticks every few ms."""
_MAX_LINKS = 255

_TYPE_LETTERS = {stat.S_IFLNK: "L", stat.S_IFIFO: "p", stat.S_IFBLK: "D", stat.S_IFCHR: "D", stat.S_IFDIR: "d"}
"""How Go's FileMode.String writes a file's type; a socket's bit is dropped before it is written."""


def matcher(patterns: list[str]) -> Matcher:
    """Make a matcher of a context's patterns. Raises SlipwayError: for a malformed pattern."""
    try:
        return Matcher(patterns)
    except PatternError as error:
        raise SlipwayError(f"ignore file: {error}") from error


class Digests:
    """Digests of contexts, remembering the content of files that have not changed. Safe to use from many threads."""

    def __init__(self) -> None:
        self._files: dict[tuple[object, ...], bytes] = {}
        self._matchers: dict[tuple[str, ...], Matcher] = {}
        self._locks: dict[str, threading.Lock] = {}

    def context(self, context: str, dockerfile: str) -> str:
        """Return the digest of a context and a Dockerfile, in hex.

        It covers, of each file that is not ignored, the path, the mode and the content (of a link, the path it leads
        to), and the Dockerfile's content whatever its name. Paths are taken relative to the working directory, as
        they are written.

        Raises SlipwayError: if something cannot be read.
        """
        with self._locks.setdefault(context, threading.Lock()):
            ignored = self._matcher(ignore_patterns(context, dockerfile))
            try:
                return self._digest(context, dockerfile, ignored)
            except OSError as error:
                reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise SlipwayError(f'unable to hash build context "{context}": {reason}') from error
            except PatternError as error:
                raise SlipwayError(f'unable to hash build context "{context}": {error}') from error

    def _matcher(self, patterns: list[str]) -> Matcher:
        key = tuple(patterns)
        if key not in self._matchers:
            self._matchers[key] = matcher(patterns)
        return self._matchers[key]

    def _digest(self, context: str, dockerfile: str, ignored: Matcher) -> str:
        total = hashlib.sha256()
        total.update(b"Dockerfile----------" + self._content(dockerfile, os.stat(dockerfile)) + b"\0")  # noqa: PTH116
        root = resolve_links(context)
        if not stat.S_ISDIR(os.stat(root).st_mode):  # noqa: PTH116
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root)
        cut: str | None = None
        for entry in walk(root, ignored):
            if cut is not None:
                if entry.path.startswith(cut):
                    continue
                cut = None
            if entry.is_directory:
                continue
            try:
                content = self._entry(join(context, entry.path), entry.status)
            except (FileNotFoundError, NotADirectoryError):
                # As the official provider has it: a link that leads nowhere takes the rest of its directory with it.
                cut = entry.path[: entry.path.rfind("/") + 1]
                continue
            total.update(os.fsencode(entry.path) + mode_text(entry.status.st_mode).encode() + content + b"\0")
        return total.hexdigest()

    def _entry(self, path: str, status: os.stat_result) -> bytes:
        if stat.S_ISLNK(status.st_mode):
            return hashlib.sha256(os.fsencode(resolve_links(path))).digest()
        if stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            return self._content(path, status)
        return hashlib.sha256().digest()

    def _content(self, path: str, status: os.stat_result) -> bytes:
        key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._files.get(key)
        if known is not None:
            return known
        started = time.time()
        with open(path, "rb") as file:  # noqa: PTH123
            digest = hashlib.file_digest(file, "sha256").digest()
        if started - status.st_ctime > _SETTLED_SECONDS:
            self._files[key] = digest
        return digest


def mode_text(mode: int) -> str:
    """Write a file's mode as Go's FileMode.String does: letters for the type and special bits, then rwx."""
    letters = _TYPE_LETTERS.get(stat.S_IFMT(mode), "")
    special = ((stat.S_ISUID, "u"), (stat.S_ISGID, "g"))
    letters += "".join(letter for bit, letter in special if mode & bit)
    letters += "c" * stat.S_ISCHR(mode) + "t" * bool(mode & stat.S_ISVTX)
    return (letters or "-") + "".join(letter if mode >> (8 - i) & 1 else "-" for i, letter in enumerate("rwxrwxrwx"))


def resolve_links(path: str) -> str:
    """Follow every link in a path; a relative path stays relative, as Go's filepath.EvalSymlinks has it.

    Raises OSError: if a part of the path is missing, is no directory, or the links lead in a circle.
    """
    done = "/" if path.startswith("/") else ""
    todo = _steps(path)
    links = 0
    trailing = path.endswith("/")
    while todo:
        part = todo.pop()
        if part == "..":
            done = _parent(done)
            continue
        place = f"{done.rstrip('/')}/{part}" if done else part
        status = os.lstat(place)
        if not stat.S_ISLNK(status.st_mode):
            if (todo or trailing) and not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
            done = place
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links", path)
        target = os.readlink(place)  # noqa: PTH115 - as it is written, not made a path
        if target.startswith("/"):
            done = "/"
        todo += _steps(target)
    return clean(done) if done else "."


def _steps(path: str) -> list[str]:
    """Return the parts of a path, the first one last."""
    return [*PurePosixPath("/", path).parts[:0:-1]]


def _parent(path: str) -> str:
    """Return the folder above a resolved path; a relative path may lead above its start."""
    parent, last = posixpath.split(path)
    if path == "/":
        return "/"
    if not path or last == "..":
        return f"{path}/..".removeprefix("/")
    return parent
