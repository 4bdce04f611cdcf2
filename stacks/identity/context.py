"""The build context: which files belong to an image.

The rules are Docker's own: a builder receives these files, and the docker provider hashes them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stacks.errors import SlipwayError
from stacks.identity.ignore import Matched, Matcher, PatternError, join, parse

IGNORE = ".dockerignore"
"""The name of a context's ignore file; after a Dockerfile's name, that of the Dockerfile's own ignore file."""


@dataclass(frozen=True)
class Entry:
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


def walk(root: str, ignored: Matcher) -> Iterator[Entry]:
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
    directory: str, prefix: str, ignored: Matcher, above: Matched, pending: list[Entry], names: Iterable[str]
) -> Iterator[Entry]:
    """Walk one directory; `pending` are the ignored directories above that have not been yielded yet."""
    for name in sorted(names, key=os.fsencode):
        path, source = prefix + name, f"{directory}/{name}"
        skip, matched = ignored.match(path, above)
        try:
            entry = Entry(path, source, os.lstat(source))
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


def files(context: Path, dockerfile: str) -> dict[str, str]:
    """Return a SHA-256 of each file that a build sees, in hexadecimal, by its path in the context.

    The hash covers what git keeps of a file: its content, its executable bit and, for a link, the target. So the hash
    is the same in every clone, whatever the umask. The Dockerfile is included even when the ignore file leaves it out.

    Raises:
        SlipwayError: the Dockerfile is missing, or a file cannot be read.
    """
    main = context / dockerfile
    if not main.is_file():
        raise no_dockerfile(main)
    try:
        ignored = Matcher(ignore_patterns(str(context), str(main)))
        return {dockerfile: _digest(Entry(dockerfile, str(main), main.lstat()))} | {
            entry.path: _digest(entry) for entry in walk(str(context), ignored) if not entry.is_directory
        }
    except (OSError, PatternError) as error:
        raise SlipwayError(f"{context}: the files of the build context cannot be read: {error}") from error


def no_dockerfile(path: Path | str) -> SlipwayError:
    """Return the error about a missing Dockerfile."""
    return SlipwayError(f"{path}: there is no such Dockerfile; an image's folder holds its Dockerfile")


def digest(content: bytes, *, executable: bool = False, link: bool = False) -> str:
    """Return the SHA-256 of what git keeps of a file; for a link, ``content`` is the target."""
    kind = b"link" if link else b"executable" if executable else b"file"
    return hashlib.sha256(kind + b"\0" + content).hexdigest()


def _digest(entry: Entry) -> str:
    mode = entry.status.st_mode
    if stat.S_ISLNK(mode):
        return digest(os.fsencode(Path(entry.source).readlink()), link=True)
    content = Path(entry.source).read_bytes() if stat.S_ISREG(mode) else b""
    return digest(content, executable=bool(mode & stat.S_IXUSR))
