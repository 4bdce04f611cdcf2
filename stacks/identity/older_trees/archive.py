"""A commit's folder as git archives it, and the build context in such an archive.

The context is read from the archive in memory: writing it to disk takes longer than everything else.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from containers.dockerfile.context import IGNORE, MOST_LINKS, digest, lfs_object, no_dockerfile
from containers.dockerfile.ignore import Matcher, PatternError, parse
from containers.errors import SlipwayError, one_line
from containers.path_prefixes import prefixes
from stacks.identity import git

ATTRIBUTES: Final = ".gitattributes"
_OVERRIDE: Final = b"\n* -export-ignore -export-subst -filter\n"
_SUBMODULE: Final = "160000"
"""git's mode of one."""
_ABSENT: Final = "a submodule that is not here"
_SHA256_DIGITS: Final = 64
_OBJECT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256: Final = "[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = sha256\n"
_SETTINGS: Final = ("core.autocrlf=false", "core.eol=lf", f"core.attributesFile={os.devnull}")


def archives(root: Path, commit: str, folder: str) -> list[bytes]:
    """Return tar archives of a commit's folder, with the files as every checkout writes them; none of a missing folder.

    A tag must mean one content on all machines, so the commit's own ``.gitattributes`` alone count: no setting of this
    machine, no ``info/attributes``, no filter. A work tree that these changed is then another content than the commit.
    The submodules in the folder have an archive each, as far as the work tree has their repositories.

    Raises:
        SlipwayError: git cannot read the commit, or a path in it leads out of its folder.
    """
    *_, prefix = _places(root)
    named = commit if _OBJECT.fullmatch(commit) else git.read(root, "rev-parse", "--verify", commit).decode().strip()
    return _archives(root, f"{named}:{prefix}", folder, "")


@cache
def _places(root: Path) -> list[str]:
    """Return where git has a work tree's objects and settings, and its path in the repository. They stay."""
    words = ("--git-path", "objects", "--git-common-dir", "--show-prefix")
    return os.fsdecode(git.read(root, "rev-parse", *words)).removesuffix("\n").split("\n", 2)


def _archives(root: Path, tree: str, folder: str, prefix: str) -> list[bytes]:
    """Return the archives of a folder of a tree, or of all of it, with the paths in it below ``prefix``."""
    listing = git.read(root, "ls-tree", "--full-tree", "-r", "-z", tree, *_paths(folder))
    entries = [entry.partition("\t") for entry in os.fsdecode(listing).split("\0") if entry]
    for path in (path for _, _, path in entries):
        if ".." in PurePosixPath(path).parts:  # git writes no such tree, and checks out none
            raise SlipwayError(f"{tree}: the path '{one_line(path)}' leads out of its folder; see what `git fsck` says")
    if not any(f"{path}/".startswith(f"{folder}/" if folder else "") for _, _, path in entries):
        return []
    attributes = [path for _, _, path in entries if posixpath.basename(path) == ATTRIBUTES]
    found = [_archive(root, tree, folder, prefix, attributes)]
    for information, _, path in entries:
        mode, _, commit = information.split()
        if mode == _SUBMODULE and (root / path / ".git").exists():
            with suppress(SlipwayError):  # its repository may lack the commit
                found += _archives(root / path, f"{commit}:", "", f"{prefix}{path}/")
    return found


def _paths(folder: str) -> list[str]:
    """Return what is listed of a tree: a folder, and the attributes in those above it; nothing for all of the tree."""
    above = [f"{path}/{ATTRIBUTES}" for path in prefixes(folder)]
    return [ATTRIBUTES, *above, folder] if folder else []


def _archive(root: Path, tree: str, folder: str, prefix: str, attributes: Sequence[str]) -> bytes:
    """Return one archive; ``attributes`` are the files of attributes that count.

    They may also keep files out of an archive or write into them (``export-ignore``, ``export-subst``), which builds do
    not. So git reads them from a temporary work tree that overrides these, in a repository with this one's objects and
    without settings.
    """
    objects, common, _ = _places(root)
    with tempfile.TemporaryDirectory(prefix="slipway-") as temporary:
        repository, work_tree = Path(temporary, "git"), Path(temporary, "tree")
        (repository / "refs").mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        if tree.index(":") == _SHA256_DIGITS:
            (repository / "config").write_text(_SHA256)
        work_tree.mkdir()
        (work_tree / ATTRIBUTES).write_bytes(_OVERRIDE)
        for path in attributes:
            (work_tree / path).parent.mkdir(parents=True, exist_ok=True)
            (work_tree / path).write_bytes(git.read(root, "cat-file", "blob", f"{tree}{path}") + _OVERRIDE)
        # A partial clone fetches by the settings of its remote.
        settings = (f"include.path={Path(root, common).absolute() / 'config'}", *_SETTINGS)
        command = (
            *("--git-dir", str(repository), "--work-tree", str(work_tree)),
            *(word for setting in settings for word in ("-c", setting)),
            *("archive", "--worktree-attributes", f"--prefix={prefix}", tree, *([folder] if folder else ())),
        )
        environment = {"GIT_OBJECT_DIRECTORY": str(Path(root, objects).absolute()), "GIT_ATTR_NOSYSTEM": "1"}
        return git.read(work_tree, *command, environment=environment)


def large_files(root: Path) -> list[Path]:
    """Return the folders of Git LFS for the files of a repository and of its submodules. They need not exist.

    All worktrees of a repository share one. The setting ``lfs.storage`` is a folder in the one of git, or anywhere. No
    variable of the environment names another (git-lfs/git-lfs af13aa8f, config/config.go:441, fs/fs.go:202-216).
    """
    common = (git.git(root, "rev-parse", "--git-common-dir") or ".git").strip()
    storage = (git.git(root, "config", "--get", "lfs.storage") or "").removesuffix("\n") or "lfs"
    repositories = (Path(root, common), *(head.parent for head in _heads(root)))
    return [*dict.fromkeys(repository / storage / "objects" for repository in repositories)]


def state(root: Path) -> str:
    """Return what changes as large files and commits of submodules come: a commit's archives have them too."""
    commits = [path.read_text(errors="replace") for path in _heads(root)]
    return "".join([str(sum(1 for folder in large_files(root) for _ in folder.glob("*/*/*"))), *commits])


def _heads(root: Path) -> list[Path]:
    """Return the files ``HEAD`` of the submodules' repositories, and of their remotes."""
    modules = Path(root, (git.git(root, "rev-parse", "--git-path", "modules") or "").strip())
    return [path for path in sorted(modules.glob("**/HEAD")) if path.is_file()]


class ArchivedContext:
    """The build context in the archives of ``folder``; without any, it has no files.

    No build gets a pointer of Git LFS (:func:`containers.dockerfile.context.lfs_object`). In a commit it stands for its
    content, as far as ``large`` has that: the folders of :func:`large_files`. A submodule without an archive is a path
    that equals none on disk: another machine may have it.
    """

    def __init__(self, archives: Iterable[bytes], folder: str, large: Sequence[Path] = ()) -> None:
        self._folder, self._large = folder, large
        self._content: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._executable: dict[str, bool] = {}
        self._digests: dict[str, str] = {}
        self._paths: dict[str, Sequence[str]] = {}
        folders = set[str]()
        for archive in archives:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                for member in tar:
                    path = member.name.removeprefix(f"{folder}/")
                    if member.issym():
                        self._links[path] = member.linkname
                    elif file := tar.extractfile(member):
                        self._content[path] = file.read()
                        self._executable[path] = bool(member.mode & 0o100)
                    elif member.name != folder:
                        folders.add(path)
        full = {prefix for path in (*self._content, *self._links) for prefix in prefixes(path)}
        self._digests |= dict.fromkeys(folders - full, _ABSENT)

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
                    for path in {*self._content, *self._links, *self._digests}
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
            for folder in self._large:
                with suppress(OSError):
                    content = (folder / name[:2] / name[2:4] / name).read_bytes()
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
