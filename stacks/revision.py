"""Which commit an image comes from: the last one that changed what is built, not simply the last one.

A fingerprint (:mod:`stacks.fingerprint`) says what is built. An image's commit is the last one whose own tree
gives the fingerprint that the image has now, and before which it was another. Older trees are asked, not guessed: their
``stacks`` is run as it was, so that a new default or a new argument in Python counts like one in YAML, and an
edited comment does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from stacks import context
from stacks.cache import Cache
from stacks.fingerprint import fingerprints as fingerprints_of
from stacks.spec import CONTEXT, ImageSpec
from stacks.tags import Revision, branch_prefix

_ABBREVIATION = 7
_PARTS = ("stacks", CONTEXT)
"""The folders that decide what is built."""


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
    head = _git(root, "rev-parse", "--is-shallow-repository", "HEAD", "--abbrev-ref", "HEAD")
    if head is None:
        return marked
    shallow, commit, branch = head.split()
    if shallow == "true":
        return marked
    prefix = branch_prefix(_branch(branch))
    found = Cache(root, "revisions").get(
        ["found", commit, stack, sorted(fingerprints.items())],
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


def _branch(name: str) -> str:
    """Return the branch's name; on a detached HEAD, as CI checks out, what the environment says, else main."""
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
    listed = _git(root, "rev-list", "--first-parent", "HEAD", "--", *_PARTS)
    commits = listed.split() if listed else []
    if not commits:
        return {}
    cache = Cache(root, "revisions")

    def at(commit: str) -> dict[str, str]:
        trees = _git(root, "rev-parse", *(f"{commit}:./{part}" for part in _PARTS))
        if trees is None:  # a commit from before one of the folders was there
            return {}
        return cache.get(["at", stack, trees.split()], lambda: _fingerprints_at(stack, commit, root))

    newest: dict[tuple[str, ...], str | None] = {}
    result: dict[str, tuple[str, bool]] = {}
    for name, fingerprint in fingerprints.items():
        then = at(commits[0]).get(name)
        clean = then == fingerprint
        paths = tuple(f"{CONTEXT}/{path}" for path in files[name])
        if paths not in newest:
            newest[paths] = _git(root, "rev-list", "-1", "HEAD", "--", *paths)
        commit = (newest[paths] or "").strip()
        if then is None:
            commit = commits[0]
        elif not commit or at(commit).get(name) != then:
            commit = _boundary(commits, commit, partial(_builds, at, name, then))
        result[name] = (commit[:_ABBREVIATION], clean)
    return result


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
    archive = subprocess.run(["git", "-C", str(root), "archive", commit, *_PARTS], capture_output=True, check=False)
    if archive.returncode:
        return {}
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        environment = {key: value for key, value in os.environ.items() if key in {"PATH", "HOME", "LANG"}}
        asked = subprocess.run(
            [sys.executable, "-m", "stacks", "specs", stack],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=False,
        )
        if asked.returncode:
            return {}
        try:
            ordered = [ImageSpec.model_validate(item) for item in json.loads(asked.stdout)]
            files = {spec.dockerfile: context.files(Path(folder) / CONTEXT, spec.dockerfile) for spec in ordered}
        except ValueError:
            return {}
        return fingerprints_of(ordered, files)


def _git(root: Path, *arguments: str) -> str | None:
    """Run git in the checkout; nothing when it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
