"""Which commit an image comes from: the last one with a change of the build, which is often not the newest.

A fingerprint (:mod:`stacks.identity.fingerprint`) says what is built. An image's commit is the first one with the
fingerprint that all later commits have too. :mod:`stacks.identity.older_trees` says what each commit built. Where the
stack had no such image, another stack may have built it (:mod:`stacks.identity.older_trees.other_stacks`): the stack's
file was renamed, or the image was moved or copied. Reading a tree takes a while, so the search goes by the commits that
can change an image alone.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

from containers.dockerfile.context import IGNORE
from containers.errors import SlipwayError
from stacks.config.fetching.mirrors import MIRRORS_VARIABLE
from stacks.identity import kept_commits, older_trees
from stacks.identity.cache import Cache
from stacks.identity.git import git
from stacks.identity.older_trees import archive, rules
from stacks.identity.older_trees import fingerprint_record as record
from stacks.identity.older_trees.other_stacks import NamedImage, OtherStacks
from stacks.places import FLAVORS, PIN, ROOT, TABLES
from stacks.tags import Revision, branch_prefix

BRANCH_VARIABLE = "SLIPWAY_BRANCH"
"""Environment variable with the branch for tags, in place of the one that is checked out."""

_ABBREVIATION = 7
_DECIDING: Final = re.compile(
    rf"{older_trees.DATA.pattern}|{rules.DECIDING.pattern}|(.+/)?{re.escape(archive.ATTRIBUTES)}"
    rf"|{re.escape(record.FILE)}|(.+/)?[^/]*{re.escape(IGNORE)}"
)


def find(
    stack: str,
    fingerprints: Mapping[str, str],
    suffixes: Mapping[str, str],
    files: Mapping[str, Mapping[str, str]],
    root: Path,
    own: tuple[str, ...] = (),
    repository: str = "",
) -> dict[str, Revision]:
    """Return each image's revision.

    ``fingerprints`` are the images' present ones, ``suffixes`` their tags' and ``files`` their contexts' files.
    ``repository`` is the prefix of their names.
    ``own`` are the files and folders that the stack's own images are made of, besides those of every stack. Where the
    tree or the configuration differs from every commit, the revision is the last commit's with a mark after it.
    Without git, in a shallow clone, or where the folders are not tracked, the tag has the mark alone.

    Raises SlipwayError: no character of the branch's name is valid in a tag.
    """
    marks = {name: Revision(mark=fingerprint[:8]) for name, fingerprint in fingerprints.items()}
    description = git(root, "rev-parse", "--is-shallow-repository", "HEAD", "--abbrev-ref", "HEAD")
    if description is None:
        return marks
    shallow, head, branch = description.split()
    if shallow == "true":
        return marks
    prefix = branch_prefix(_branch(branch))
    commits = kept_commits.of_stack(stack, suffixes, root, repository)
    kept = {name: (commits[name, value], True) for name, value in fingerprints.items() if (name, value) in commits}
    searched = {name: value for name, value in fingerprints.items() if name not in kept}
    origins = kept | Cache(root, "revisions").get(
        ["origins", *_reading(root, TABLES), head, stack, sorted(searched.items()), own, suffixes, repository],
        lambda: _origins(stack, searched, suffixes, files, root, head, own, repository),
    )
    return {
        name: Revision(branch=prefix, commit=origins[name][0], mark=None if origins[name][1] else fingerprint[:8])
        if name in origins
        else marks[name]
        for name, fingerprint in fingerprints.items()
    }


def newest(fingerprints: Mapping[str, str], root: Path) -> dict[str, Revision]:
    """Return each image's revision as if the last commit had changed it. No older tree is read.

    It is as long as the one that :func:`find` returns for a committed tree.

    Raises SlipwayError: see :func:`find`.
    """
    description = git(root, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    if description is None:
        return {name: Revision(mark=fingerprint[:8]) for name, fingerprint in fingerprints.items()}
    head, branch = description.split()
    revision = Revision(branch=branch_prefix(_branch(branch)), commit=head[:_ABBREVIATION])
    return dict.fromkeys(fingerprints, revision)


def prefix(root: Path) -> str | None:
    """Return what the branch puts before tags: nothing for ``main``, nor without git.

    Raises SlipwayError: no character of the branch's name is valid in a tag.
    """
    name = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    return None if name is None else branch_prefix(_branch(name.strip()))


def _branch(name: str) -> str:
    """Return the branch's name; on a detached HEAD, as CI checks out, what the environment says, else main."""
    if os.environ.get(BRANCH_VARIABLE):
        return os.environ[BRANCH_VARIABLE]
    if name != "HEAD":
        return name
    if os.environ.get("GITHUB_HEAD_REF"):
        return os.environ["GITHUB_HEAD_REF"]
    if os.environ.get("GITHUB_REF_TYPE") == "branch":
        return os.environ.get("GITHUB_REF_NAME", "main")
    return "main"


def _origins(
    stack: str,
    fingerprints: Mapping[str, str],
    suffixes: Mapping[str, str],
    files: Mapping[str, Mapping[str, str]],
    root: Path,
    head: str,
    own: tuple[str, ...],
    repository: str,
) -> dict[str, tuple[str, bool]]:
    """Return each image's commit, abbreviated, and whether that commit's tree equals today's build."""
    commits = _commits(root, head, own)
    if not commits:
        return {}
    others = OtherStacks(stack, root, head, _reading(root, TABLES))

    def builds(name: str, fingerprint: str, commit: str) -> bool:
        then = _fingerprints(root, commit, stack, own).get(name)
        image = NamedImage(name, fingerprint, suffixes[name], repository)
        if then == fingerprint:
            return others.tagged(image, commit)
        return others.built(image, commit, before=then is None)

    newest = dict(_fingerprints(root, commits[0], stack, own))
    for name, fingerprint in fingerprints.items():
        if newest.get(name, fingerprint) != fingerprint:
            continue
        if builds(name, fingerprint, commits[0]):
            newest[name] = fingerprint
        else:
            newest.pop(name, None)
    origins = dict.fromkeys(fingerprints, commits[0])
    for name in newest.keys() & fingerprints.keys():
        is_newest = functools.partial(builds, name, newest[name])
        origins[name] = _origin(root, head, commits, tuple(files[name]), is_newest)
    return {name: (commit[:_ABBREVIATION], newest.get(name) == fingerprints[name]) for name, commit in origins.items()}


def _origin(
    root: Path, head: str, commits: Sequence[str], files: tuple[str, ...], is_newest: Callable[[str], bool]
) -> str:
    """Return the commit that an image comes from: a change of its files, or of what else decides it.

    ``is_newest`` says of a commit whether it builds the image as the first of ``commits`` does.
    """
    same, start = 0, head  # the place of the last commit that is equal, and where to look from
    while True:
        edit = _last_edit(root, start, files)
        place = commits.index(edit) if edit in commits else None
        if edit is None or not is_newest(edit):
            return _last_equal(commits[same:place], _deciding(root, head), is_newest)
        parent = _parent(root, edit)
        if not (parent and is_newest(parent)):
            return edit
        # No build reads the edit; it may be a comment's.
        same, start = same if place is None else place, parent


def _last_equal(commits: Sequence[str], deciding: Set[str], is_newest: Callable[[str], bool]) -> str:
    """Return the last one before the nearest that differs; the first is equal, and no file of its context changes.

    A change may have been taken back. So each commit before one that can change an image is looked at, newest first.
    """
    for commit, before in itertools.pairwise(commits):
        if commit in deciding and not is_newest(before):
            return commit
    return commits[-1]


@functools.cache
def _deciding(root: Path, head: str) -> Set[str]:
    """Return the commits with a change of what decides an image besides the files that its context has now.

    A file that is gone, renamed or ignored was perhaps one of these.
    """
    options = ("--first-parent", "-m", "--relative", "--no-renames", "--name-status", "--format=commit %H")
    log = git(root, "log", *options, head) or ""
    entries = [entry.split("\n") for entry in re.split("^commit ", log, flags=re.MULTILINE)[1:]]
    changes = ((commit, [line.partition("\t") for line in lines if line]) for commit, *lines in entries)
    return {
        commit
        for commit, lines in changes
        if any(how == "D" or _DECIDING.fullmatch(path.strip('"')) for how, _, path in lines)
    }


@functools.cache
def _commits(root: Path, head: str, own: tuple[str, ...]) -> list[str]:
    """Return the commits that changed ``stacks`` or the contexts, newest first."""
    return (git(root, "rev-list", "--first-parent", head, "--", *older_trees.FOLDERS, *own) or "").split()


@functools.cache
def _last_edit(root: Path, head: str, files: tuple[str, ...]) -> str | None:
    """Return the last commit with a change of one of a context's files, on any merged branch."""
    return (git(root, "rev-list", "-1", head, "--", *files) or "").strip() or None


@functools.cache
def _parent(root: Path, commit: str) -> str | None:
    """Return a commit's first parent; None for the first commit."""
    return (git(root, "rev-parse", "--verify", "--quiet", f"{commit}^") or "").strip() or None


def _reading(root: Path, *more: str) -> list[str]:
    """Return what makes fingerprints besides a tree: :func:`_rules`, the environment's mirrors, what git fetched."""
    return [_rules(*more), os.environ.get(MIRRORS_VARIABLE, ""), _state(root)]


_state = functools.cache(archive.state)


@functools.cache
def _rules(*more: str) -> str:
    """Return a hash of the code that makes fingerprints, and of a repository's own files in its flavors.

    ``more`` are other folders. Rows of tables are none of them by default: they are data, and a commit has its own.
    """
    own = [
        path for name in (FLAVORS, PIN, *more) for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()
    ]
    sources = [*sorted(Path(__file__).parents[1].rglob("*.py")), *sorted(each for each in own if each.suffix != ".pyc")]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


@functools.cache
def _fingerprints(root: Path, commit: str, stack: str, own: tuple[str, ...]) -> Mapping[str, str]:
    """Return what a commit builds of a stack; nothing if git cannot read it or nobody can tell.

    An older stack may have had its own images elsewhere: then the whole tree decides.
    """
    names = _objects(root, commit) | ({"": commit} if own else {})
    try:
        return Cache(root, "revisions").get(
            ["at", *_reading(root), names, stack], lambda: dict(older_trees.published(commit, root, stack))
        )
    except SlipwayError:
        return {}


@functools.cache
def _objects(root: Path, commit: str) -> dict[str, str]:
    try:
        return older_trees.objects(commit, root)
    except SlipwayError:
        return {}
