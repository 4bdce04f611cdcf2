"""The files of an upstream: in a folder, in an archive, or at a tag of a git repository."""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath

from cli.locking import git_objects
from containers.errors import SlipwayError, one_line

MOST_READ = 1 << 28
"""Bytes of the largest file that is read: a library with GPU code has more."""


class UpstreamFiles(ABC):
    """Some upstream's files, by their paths from its root."""

    @property
    @abstractmethod
    def paths(self) -> frozenset[str]:
        """The paths of all files, folders, links and submodules."""

    @abstractmethod
    def content(self, path: str) -> bytes:
        """Return the content of a file; that of a folder is empty."""

    def matching(self, pattern: str) -> list[str]:
        """Return the paths of the form ``pattern``, in which ``*`` stands for any part of one name, in order."""
        if "*" not in pattern:
            return [pattern] if pattern in self.paths else []
        expression = re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))
        return sorted(filter(expression.fullmatch, self.paths))


def _with_folders(paths: Iterable[str]) -> frozenset[str]:
    every: set[str] = set()
    for path in paths:
        every.add(path)
        every.update(str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")
    return frozenset(every)


class FolderFiles(UpstreamFiles):
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def paths(self) -> frozenset[str]:
        """The paths of all files and folders but git's own."""
        return frozenset(self._walk())

    def _walk(self) -> Iterator[str]:
        for top, folders, files in os.walk(self._folder):
            folders[:] = [folder for folder in folders if folder != ".git"]
            for name in (*folders, *files):
                yield (Path(top) / name).relative_to(self._folder).as_posix()

    def content(self, path: str) -> bytes:
        """Return the content of a file."""
        file = self._folder / path
        try:
            return file.read_bytes()[:MOST_READ] if file.is_file() else b""
        except OSError as error:
            raise SlipwayError(f"{file} cannot be read: {error.strerror}") from None


class ArchiveFiles(UpstreamFiles):
    """The files of an archive, which is not unpacked; one folder that all are in is left out.

    Raises SlipwayError: the file is no archive, or not a whole one.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with _whole(file):
            self._zip = zipfile.is_zipfile(file)
            if self._zip:
                with zipfile.ZipFile(file) as archive:
                    members = archive.namelist()
            else:
                with tarfile.open(file) as archive:
                    members = archive.getnames()
        names = {PurePosixPath(member).as_posix(): member for member in members}
        names.pop(".", None)
        tops = {PurePosixPath(name).parts[0] for name in names}
        top = f"{tops.pop()}/" if len(tops) == 1 and any("/" in name for name in names) else ""
        self._members = {name.removeprefix(top): member for name, member in names.items() if f"{name}/" != top}
        self._contents: dict[str, bytes] = {}

    @cached_property
    def paths(self) -> frozenset[str]:
        """The paths of all members and of the folders that they are in."""
        return _with_folders(self._members)

    def content(self, path: str) -> bytes:
        """Return the content of a member."""
        # To find a member again takes as long as to read the whole archive.
        if path not in self._contents:
            with _whole(self._file):
                self._contents[path] = self._read(self._members[path]) if path in self._members else b""
        return self._contents[path]

    def _read(self, member: str) -> bytes:
        if self._zip:
            with zipfile.ZipFile(self._file) as archive:
                return archive.read(member)[:MOST_READ]
        with tarfile.open(self._file) as archive:
            try:
                stream = archive.extractfile(member)
            except KeyError:  # a link to what is not in the archive
                return b""
            return stream.read(MOST_READ) if stream else b""


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, lzma.LZMAError, RuntimeError) as error:
        reason = one_line(str(error) or type(error).__name__)
        raise SlipwayError(f"{file}: no archive, or not a whole one: {reason}; fetch it again") from None


class RepositoryFiles(UpstreamFiles):
    """The files of a commit, from a git repository's objects; what is checked out does not count."""

    def __init__(self, repository: Path, commit: str) -> None:
        self._repository, self._commit = repository, commit

    @cached_property
    def paths(self) -> frozenset[str]:
        """The paths of all files, submodules, and the folders that they are in."""
        return _with_folders(git_objects.paths(self._repository, self._commit))

    def content(self, path: str) -> bytes:
        """Return the content of a file; that of a link is its target."""
        return git_objects.content(self._repository, self._commit, path)[:MOST_READ]
