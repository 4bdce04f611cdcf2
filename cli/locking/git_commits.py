"""Commits of branches and tags, and whole commits for short ones, as the repository's host has them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from cli.locking import git_objects
from containers.errors import SlipwayError, one_line
from stacks.config.fetching.mirrors import MirrorsConfig


def of_branch(address: str, branch: str) -> str:
    """Return the newest commit of a repository's branch.

    Raises SlipwayError: the repository does not respond, or has no such branch.
    """
    ref = f"refs/heads/{branch}"
    commit = _listed(address, [ref]).get(ref)
    if commit is None:
        raise SlipwayError(f"{address} has no branch '{one_line(branch)}'")
    return commit


def of_tags(address: str, refs: Sequence[str]) -> dict[str, str | SlipwayError]:
    """Return the commit of each of a repository's tags, ``refs/tags/...``; an error for one that it does not have.

    An annotated tag is an object of its own; git lists the commit that it names as ``<ref>^{}`` (git-ls-remote(1)).

    Raises SlipwayError: the repository does not respond.
    """
    listed = _listed(address, [*refs, *(f"{ref}^{{}}" for ref in refs)])
    return {
        ref: listed.get(f"{ref}^{{}}")
        or listed.get(ref)
        or SlipwayError(f"{address} has no tag '{one_line(ref.removeprefix('refs/tags/'))}'")
        for ref in refs
    }


def of_short(repository: str, short: str, mirrors: MirrorsConfig) -> str:
    """Return all 40 digits of a short commit of a repository, ``owner/name``, that is on one of its branches.

    No host is asked for a commit by a part of its name: the history of all branches is fetched, without files.

    Raises SlipwayError: the repository does not respond, or has no such commit, or several.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        return git_objects.fetched(repository, short, Path(folder), mirrors.git or git_objects.PUBLIC)


def _listed(address: str, refs: Sequence[str]) -> dict[str, str]:
    """Return what a repository has of some refs: the object of each.

    To git each is a pattern that may match the end of another ref: look up what was asked for.

    Raises SlipwayError: the repository does not respond.
    """
    done = git_objects.run_git(Path.cwd(), "ls-remote", address, *refs)
    if done.returncode:
        raise SlipwayError(f"{address}: {one_line(done.stderr.decode(errors='replace').strip())}")
    return {ref: name for name, _, ref in (line.partition("\t") for line in done.stdout.decode().splitlines())}
