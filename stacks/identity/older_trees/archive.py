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
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from containers.dockerfile.context import IGNORE, MOST_LINKS, digest, lfs_object, no_dockerfile
from containers.dockerfile.ignore import Matcher, PatternError, parse
from containers.errors import SlipwayError, one_line
from containers.path_prefixes import prefixes
from stacks.identity import git

ATTRIBUTES: Final = ".gitattributes"
_OVERRIDE: Final = b"\n* -export-ignore -export-subst -filter\n"
_SETTINGS: Final = ("core.autocrlf=false", "core.eol=lf", f"core.attributesFile={os.devnull}")


def archives(root: Path, commit: str, folders: Sequence[str]) -> dict[str, bytes]:
    """Return a tar archive of each of the folders that a commit has, with the files as every checkout writes them.

    A tag must mean one content on all machines, so the commit's own ``.gitattributes`` alone count: no setting of this
    machine, no ``info/attributes``, no filter. A work tree that these changed is then another content than the commit.
    The attributes may also keep files out of an archive or write into them (``export-ignore``, ``export-subst``), which
    builds do not. So git reads them from a temporary work tree that overrides these, in a repository without settings
    that has the objects of this one.

    Raises:
        SlipwayError: git cannot read the commit, or a path in it leads out of its folder.
    """
    words = ("--show-object-format", "--git-path", "objects", "--git-common-dir", "--show-prefix")
    object_format, objects, common, prefix = os.fsdecode(git.read(root, "rev-parse", *words)).splitlines()
    tree = git.read(root, "rev-parse", "--verify", f"{commit}:{prefix}").decode().strip()
    listing = git.read(root, "ls-tree", "-r", "-z", "--name-only", commit, ATTRIBUTES, *folders)
    paths = [os.fsdecode(path) for path in listing.split(b"\0")]
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        repository, work_tree = Path(name, "git"), Path(name, "tree")
        (repository / "refs").mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "config").write_text(
            f"[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = {object_format}\n"
        )
        work_tree.mkdir()
        (work_tree / ATTRIBUTES).write_bytes(_OVERRIDE)
        for path in paths:
            if ".." in PurePosixPath(path).parts:  # git writes no such tree, and checks out none
                raise SlipwayError(
                    f"commit {commit}: the path '{one_line(path)}' leads out of its folder; see what `git fsck` says"
                )
            if posixpath.basename(path) == ATTRIBUTES:
                file = work_tree / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(git.read(root, "cat-file", "blob", f"{tree}:{path}") + _OVERRIDE)
        # A partial clone fetches by the settings of its remote.
        settings = (f"include.path={Path(root, common).absolute() / 'config'}", *_SETTINGS)
        command = (
            *("--git-dir", str(repository), "--work-tree", str(work_tree)),
            *(word for setting in settings for word in ("-c", setting)),
            *("archive", "--worktree-attributes", tree),
        )
        environment = {"GIT_OBJECT_DIRECTORY": str(Path(root, objects).absolute()), "GIT_ATTR_NOSYSTEM": "1"}
        return {
            folder: git.read(work_tree, *command, folder, environment=environment)
            for folder in folders
            if any(path.startswith(f"{folder}/") for path in paths)
        }


def large_files(root: Path) -> Path:
    """Return the folder where Git LFS keeps the files that it has of a repository, unless ``lfs.storage`` is set.

    git-lfs/git-lfs af13aa8f, fs/fs.go:140. It need not exist.
    """
    return Path(root, (git.git(root, "rev-parse", "--git-common-dir") or ".git").strip(), "lfs", "objects")


class ArchivedContext:
    """The build context in an archive of ``folder``; an empty archive is a context without files.

    No build gets a pointer of Git LFS (:func:`containers.dockerfile.context.lfs_object`). In a commit it stands for its
    content, as far as ``large`` has that: the folder of :func:`large_files`.
    """

    def __init__(self, archive: bytes, folder: str, large: Path = Path(os.devnull)) -> None:
        self._folder, self._large = folder, large
        self._content: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._executable: dict[str, bool] = {}
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
                    self._executable[path] = bool(member.mode & 0o100)

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
                    for path in (*self._content, *self._links)
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
        if path not in self._digests:
            self._digests[path] = self._digest(path)
        return self._digests[path]

    def link(self, path: str) -> str | None:
        """See :meth:`containers.dockerfile.context.Context.link`."""
        return self._links.get(path)

    def _digest(self, path: str) -> str:
        if path in self._links:
            return digest(os.fsencode(self._links[path]), link=True)
        content = self._content[path]
        if name := lfs_object(content):
            with suppress(OSError):
                content = (self._large / name[:2] / name[2:4] / name).read_bytes()
        return digest(content, executable=self._executable[path])

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
