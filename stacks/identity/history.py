"""Which commit an image comes from: the last one that changed what is built, not simply the last one.

A fingerprint (:mod:`stacks.identity.fingerprint`) says what is built. An image's commit is the last one whose own tree
gives the fingerprint that the image has now, and before which it was another. Older trees are asked
(:mod:`stacks.identity.older_trees`), not guessed.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from stacks.errors import SlipwayError
from stacks.identity import older_trees
from stacks.identity.cache import Cache
from stacks.identity.fingerprint import fingerprints as fingerprints_of
from stacks.identity.git import git
from stacks.spec import CONTEXT
from stacks.tags import Revision, branch_prefix

BRANCH_VARIABLE = "SLIPWAY_BRANCH"
"""Environment variable with the branch as which tags are made, whatever is checked out."""

_ABBREVIATION = 7


def find(
    stack: str, fingerprints: Mapping[str, str], files: Mapping[str, Mapping[str, str]], root: Path
) -> dict[str, Revision]:
    """Return each image's revision.

    ``fingerprints`` are the images' present ones and ``files`` their contexts' files. Where the tree or the
    configuration differs from every commit, the revision is that of the last commit with a mark beside it. Without
    git, in a shallow clone, or where the folders are not tracked, the mark stands alone.

    Raises:
        SlipwayError: the branch has a name of which nothing can stand in a tag.
    """
    marked = {name: Revision(mark=fingerprint[:8]) for name, fingerprint in fingerprints.items()}
    head = git(root, "rev-parse", "--is-shallow-repository", "HEAD", "--abbrev-ref", "HEAD")
    if head is None:
        return marked
    shallow, commit, branch = head.split()
    if shallow == "true":
        return marked
    prefix = branch_prefix(_branch(branch))
    found = Cache(root, "revisions").get(
        ["found", _rules(), commit, stack, sorted(fingerprints.items())],
        lambda: _search(stack, fingerprints, files, root),
    )
    return {
        name: Revision(
            branch=prefix,
            commit=found[name][0],
            mark=None if found[name][1] else fingerprint[:8],
        )
        if name in found
        else marked[name]
        for name, fingerprint in fingerprints.items()
    }


def prefix(root: Path) -> str | None:
    """Return what the branch puts before tags: nothing for ``main``, nor without git.

    Raises:
        SlipwayError: the branch has a name of which nothing can stand in a tag.
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


def _search(
    stack: str, fingerprints: Mapping[str, str], files: Mapping[str, Mapping[str, str]], root: Path
) -> dict[str, tuple[str, bool]]:
    """Return each image's commit, abbreviated, and whether that commit's tree is exactly what is built now."""
    listed = git(root, "rev-list", "--first-parent", "HEAD", "--", *older_trees.PARTS)
    commits = listed.split() if listed else []
    if not commits:
        return {}
    cache = Cache(root, "revisions")

    def at(commit: str) -> dict[str, str]:
        trees = git(root, "rev-parse", *(f"{commit}:./{part}" for part in older_trees.PARTS))
        if trees is None:  # a commit from before one of the folders was there
            return {}
        return cache.get(["at", _rules(), stack, trees.split()], lambda: _fingerprints_at(stack, commit, root))

    newest: dict[tuple[str, ...], str | None] = {}
    result: dict[str, tuple[str, bool]] = {}
    for name, fingerprint in fingerprints.items():
        then = at(commits[0]).get(name)
        clean = then == fingerprint
        paths = tuple(f"{CONTEXT}/{path}" for path in files[name])
        if paths not in newest:
            newest[paths] = git(root, "rev-list", "-1", "HEAD", "--", *paths)
        commit = (newest[paths] or "").strip()
        if then is None:
            commit = commits[0]
        elif not commit or at(commit).get(name) != then:
            commit = _boundary(commits, commit, functools.partial(_builds, at, name, then))
        result[name] = (commit[:_ABBREVIATION], clean)
    return result


@functools.cache
def _rules() -> str:
    """Return a hash of the code that makes fingerprints: under other rules, a kept answer is to another question."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _builds(at: Callable[[str], dict[str, str]], name: str, fingerprint: str, commit: str) -> bool:
    return at(commit).get(name) == fingerprint


def _boundary(commits: list[str], differs: str, same: Callable[[str], bool]) -> str:
    """Return the oldest commit of the run, from the newest down, for which ``same`` holds; it holds for the first.

    ``differs`` is a commit known to differ, if it is in the list. Each question costs a run of Python, hence halving.
    """
    low, high = 0, commits.index(differs) if differs in commits else len(commits)
    while high - low > 1:
        middle = (low + high) // 2
        if same(commits[middle]):
            low = middle
        else:
            high = middle
    return commits[low]


def _fingerprints_at(stack: str, commit: str, root: Path) -> dict[str, str]:
    """Ask a commit's own tree what it builds; nothing when its code cannot say."""
    try:
        images = older_trees.at(commit, root, [stack]).stacks.get(stack, {}).values()
    except SlipwayError:  # a commit that git cannot read
        return {}
    return fingerprints_of(
        [image.spec for image in images],
        {image.spec.dockerfile: image.files for image in images},
        {image.spec.name: image.labels for image in images},
    )
