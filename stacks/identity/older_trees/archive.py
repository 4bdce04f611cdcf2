"""A commit's folders as git archives them, and the build context in such an archive.

The context is read from the archive in memory: writing it to disk takes longer than everything else.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from containers.dockerfile.context import IGNORE, MOST_LINKS, digest, no_dockerfile
from containers.dockerfile.ignore import Matcher, PatternError, parse
from containers.errors import SlipwayError, one_line
from containers.path_prefixes import prefixes
from stacks.identity import git

ATTRIBUTES: Final = ".gitattributes"
_EXPORT_ALL: Final = b"\n* -export-ignore -export-subst\n"


def archives(root: Path, commit: str, folders: Sequence[str]) -> dict[str, bytes]:
    """Return a tar archive of each of the folders that a commit has, with the files as a checkout writes them.

    A commit's own ``.gitattributes`` may keep files out of an archive or write into them (``export-ignore``,
    ``export-subst``). Builds do neither, so git reads the attributes from a temporary work tree that overrides both.

    Raises:
        SlipwayError: git cannot read the commit, or a path in it leads out of its folder.
    """
    location = git.read(root, "rev-parse", "--absolute-git-dir", "--show-prefix")
    repository, prefix = location.decode().splitlines()
    tree = f"{commit}:{prefix}"
    listing = git.read(root, "ls-tree", "-r", "-z", "--name-only", commit, ATTRIBUTES, *folders)
    paths = [os.fsdecode(path) for path in listing.split(b"\0")]
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        work_tree = Path(name)
        for path in paths:
            if ".." in PurePosixPath(path).parts:  # git writes no such tree, and checks out none
                raise SlipwayError(
                    f"commit {commit}: the path '{one_line(path)}' leads out of its folder; see what `git fsck` says"
                )
            if posixpath.basename(path) == ATTRIBUTES:
                file = work_tree / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(git.read(root, "cat-file", "blob", tree + path) + _EXPORT_ALL)
        command = ("--git-dir", repository, "--work-tree", name, "archive", "--worktree-attributes", tree)
        return {
            folder: git.read(work_tree, *command, folder)
            for folder in folders
            if any(path.startswith(f"{folder}/") for path in paths)
        }


class ArchivedContext:
    """The build context in an archive of ``folder``; an empty archive is a context without files."""

    def __init__(self, archive: bytes, folder: str) -> None:
        self._folder = folder
        self._content: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._paths: dict[str, Sequence[str]] = {}
        if not archive:
            return
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                path = member.name.removeprefix(f"{folder}/")
                if member.issym():
                    self._links[path] = member.linkname
                elif file := tar.extractfile(member):
                    self._content[path] = file.read()
                else:
                    continue  # a directory
                self._digests[path] = (
                    digest(member.linkname.encode(errors="surrogateescape"), link=True)
                    if member.issym()
                    else digest(self._content[path], executable=bool(member.mode & 0o100))
                )

    def paths(self, dockerfile: str) -> Sequence[str]:
        """See :meth:`containers.dockerfile.context.Context.paths`."""
        if dockerfile not in self._paths:
            if self._read(dockerfile) is None:
                raise no_dockerfile(f"{self._folder}/{dockerfile}")
            ignore_files = (self._read(name) for name in (dockerfile + IGNORE, IGNORE))
            try:
                ignored = Matcher(parse(next((text for text in ignore_files if text is not None), b"")))
                tops = ignored.tops()
                self._paths[dockerfile] = sorted(
                    path
                    for path in self._digests
                    if (tops is None or next(prefixes(path)) in tops) and not ignored.ignores(path)
                )
            except PatternError as error:
                raise SlipwayError(f"{self._folder}: the ignore file of {dockerfile}: {error}") from None
        return self._paths[dockerfile]

    def read(self, path: str) -> bytes:
        """See :meth:`containers.dockerfile.context.Context.read`."""
        content = self._read(path)
        if content is None:
            raise no_dockerfile(f"{self._folder}/{path}")
        return content

    def digest(self, path: str) -> str:
        """See :meth:`containers.dockerfile.context.Context.digest`."""
        return self._digests[path]

    def link(self, path: str) -> str | None:
        """See :meth:`containers.dockerfile.context.Context.link`."""
        return self._links.get(path)

    def _read(self, path: str) -> bytes | None:
        return self._content.get(self._follow(path))

    def _follow(self, path: str) -> str:
        """Return the path behind a path's symbolic links, which are followed within the context only."""
        for _ in range(MOST_LINKS):
            link = next((prefix for prefix in prefixes(path) if prefix in self._links), None)
            if link is None:
                break
            target = posixpath.join(posixpath.dirname(link), self._links[link], path[len(link) + 1 :])
            path = posixpath.normpath(target)
        return path
