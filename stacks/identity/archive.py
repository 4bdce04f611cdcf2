"""A build context as git packs it, read without writing it to disk, which takes longer than all else asked of it."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections import defaultdict
from itertools import accumulate
from typing import Final

from stacks.errors import SlipwayError
from stacks.identity.context import IGNORE, digest, no_dockerfile
from stacks.identity.ignore import Matcher, PatternError, parse

_MOST_LINKS: Final = 40
"""How many links Linux follows in one path (path_resolution(7))."""


class Packed:
    """The files of a context, from an archive of ``folder`` that git has made; of none, when the archive is empty."""

    def __init__(self, archive: bytes, folder: str) -> None:
        self._folder = folder
        self._content: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._digests: defaultdict[str, dict[str, str]] = defaultdict(dict)
        if not archive:
            return
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            for member in packed:
                path = member.name.removeprefix(f"{folder}/")
                if member.issym():
                    self._links[path] = member.linkname
                elif held := packed.extractfile(member):
                    self._content[path] = held.read()
                else:
                    continue  # a directory
                self._digests[path.partition("/")[0]][path] = (
                    digest(member.linkname.encode(errors="surrogateescape"), link=True)
                    if member.issym()
                    else digest(self._content[path], executable=bool(member.mode & 0o100))
                )

    def files(self, dockerfile: str) -> dict[str, str]:
        """Return what :func:`stacks.identity.context.files` would return of the folder on disk.

        Raises:
            SlipwayError: the Dockerfile is missing, or its ignore file has a malformed pattern.
        """
        home, name = posixpath.split(dockerfile)
        itself = posixpath.normpath(posixpath.join(self._followed(home), name))
        if self._read(dockerfile) is None:
            raise no_dockerfile(f"{self._folder}/{dockerfile}")
        ignores = (self._read(name) for name in (dockerfile + IGNORE, IGNORE))
        try:
            ignored = Matcher(parse(next((text for text in ignores if text is not None), b"")))
            tops = self._digests.keys() if (only := ignored.tops()) is None else only & self._digests.keys()
            return {dockerfile: self._digests[itself.partition("/")[0]][itself]} | {
                path: known for top in tops for path, known in self._digests[top].items() if not ignored.ignores(path)
            }
        except PatternError as error:
            raise SlipwayError(f"{self._folder}: the ignore file of {dockerfile}: {error}") from None

    def _read(self, path: str) -> bytes | None:
        return self._content.get(self._followed(path))

    def _followed(self, path: str) -> str:
        """Return where a path leads when the links on the way are followed, as far as they stay in the context."""
        for _ in range(_MOST_LINKS):
            ways = accumulate(path.split("/"), posixpath.join)
            link = next((way for way in ways if way in self._links), None)
            if link is None:
                break
            target = posixpath.join(posixpath.dirname(link), self._links[link], path[len(link) + 1 :])
            path = posixpath.normpath(target)
        return path
