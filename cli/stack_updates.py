"""The updates of a stack, as Pulumi's backend has them, and the way back to an earlier one."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.pulumi_command import run_pulumi
from containers.dockerfile.context import IGNORE
from containers.errors import SlipwayError, one_line
from containers.interruption import undivided
from stacks import graph, lock
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import read_stack, stack_file
from stacks.flavors import own_images
from stacks.identity import content, git, older_trees
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.identity.fingerprint import published_fingerprints

_Resolved = tuple[StackConfig, Mapping[str, Content]]
"""A stack's configuration, and what each of its images is made of."""


@dataclass(frozen=True)
class Update:
    """One update of a stack.

    Attributes:
        number: its place in the history; the first one is 1.
        kind: what Pulumi did, such as ``update`` or ``destroy``.
        result: ``succeeded``, ``failed`` or ``in-progress``.
        started: when, in ISO 8601.
        commit: the checked-out commit; empty where git had none.
        uncommitted: whether the tree differed from that commit.
        changes: how many resources each operation changed.
    """

    number: int
    kind: str
    result: str
    started: str
    commit: str
    uncommitted: bool
    changes: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the update as JSON."""
        return vars(self)

    @property
    def source(self) -> str:
        """The commit, abbreviated, with a plus where the tree differed from it."""
        return self.commit[:7] + ("+" if self.commit and self.uncommitted else "")

    @property
    def obstacle(self) -> str:
        """Why git cannot bring its files back; empty if it can."""
        if self.kind != "update" or self.result != "succeeded":
            return f"{self.kind} {self.result}"
        if not self.commit:
            return "it was of no commit"
        return f"its files differed from commit {self.commit[:7]}" if self.uncommitted else ""


def updates(stack: str, root: Path) -> list[Update]:
    """Return a stack's updates, the newest first; none of a stack that is new.

    Raises SlipwayError: Pulumi cannot read the state.
    """
    done = run_pulumi(["history", "--json", "--full-dates"], stack, root, "the updates of a stack")
    if done.returncode and "no stack named" not in done.stderr:
        raise SlipwayError(f"stack {stack}: pulumi: {one_line(' '.join(done.stderr.split()), 400)}")
    listed = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
    return [_update(len(listed) - place, each) for place, each in enumerate(listed)]


def _update(number: int, listed: dict[str, Any]) -> Update:
    environment = listed.get("environment") or {}
    return Update(
        number=number,
        kind=listed["kind"],
        result=listed["result"],
        started=listed["startTime"],
        commit=environment.get("git.head", ""),
        uncommitted=environment.get("git.dirty") == "true",
        changes={op: count for op, count in (listed.get("resourceChanges") or {}).items() if op != "same"},
    )


def roll_back(stack: str, root: Path, number: int | None = None) -> tuple[Update, list[str]]:
    """Bring the files of a stack back to an earlier update; without a number, to the last one with other files.

    These are its YAML, the lock, and what its images' builds read, now or then. Nothing is built or committed. Returns
    the update and the files that changed.

    Raises SlipwayError: there is no such update, its commit's build is not known, today's code would build something
    else from that commit's files, or a file has uncommitted changes. No file is changed then.
    """
    resolved = graph.locked(read_stack(stack, root), f"stack {stack}", root)
    now = resolved.config, content.of_stack(resolved.specs, CheckoutContents(contexts(root)))
    update, then = _target(stack, root, number, now)
    yaml = stack_file(stack, root).relative_to(root).as_posix()
    paths = {yaml, lock.FILE, *_files(*now), *_files(*then)}
    changed = sorted(paths & {*_differing(root, update.commit)})
    # An interrupted run has already brought some files back: these are not lost.
    edited = sorted(paths & {*_differing(root, "HEAD")} & {*changed})
    untracked = sorted(paths & {*_listed(root, "ls-files", "--others")})
    if edited := edited + [path for path in untracked if not _is_of(root, update.commit, path)]:
        raise SlipwayError(
            f"stack {stack}: rollback would lose what is not committed: {', '.join(edited)}; "
            "commit it, or put it aside with `git stash --include-untracked`"
        )
    if changed:
        literal = [f":(literal){path}" for path in changed]
        with undivided():
            git.read(root, "restore", f"--source={update.commit}", "--worktree", "--", *literal)
    return update, changed


def _target(stack: str, root: Path, number: int | None, now: _Resolved) -> tuple[Update, _Resolved]:
    """Return the update to go back to, and what its commit builds. Raises SlipwayError: see :func:`roll_back`."""
    listed = updates(stack, root)
    if number is not None and number not in {each.number for each in listed}:
        known = f"its updates are 1 to {len(listed)}, see `slipway history {stack}`" if listed else "it has none"
        raise SlipwayError(f"stack {stack}: there is no update {number}: {known}")
    for update in listed:
        if number is None:
            if not update.obstacle and git.git(root, "cat-file", "-e", f"{update.commit}^{{commit}}") is not None:
                then = older_trees.of_stack(update.commit, root, stack)
                if _built(then) != _built(now):
                    return update, _certain(stack, root, update, then)
        elif update.number == number:
            if update.obstacle:
                raise SlipwayError(f"stack {stack}: update {number} is not a way back: {update.obstacle}")
            if git.git(root, "cat-file", "-e", f"{update.commit}^{{commit}}") is None:
                raise SlipwayError(
                    f"stack {stack}: update {number} is of commit {update.commit[:7]}, which is not in this clone; "
                    "`git fetch` gets it, in a shallow clone `git fetch --unshallow`"
                )
            return update, _certain(stack, root, update, older_trees.of_stack(update.commit, root, stack))
    raise SlipwayError(
        f"stack {stack}: no earlier update of a commit in this clone succeeded with other files than today's; "
        f"`slipway history {stack}` lists its updates"
    )


def _built(resolved: _Resolved) -> tuple[StackConfig, dict[str, str]]:
    config, images = resolved
    return config, published_fingerprints(images.values())


def _certain(stack: str, root: Path, update: Update, then: _Resolved) -> _Resolved:
    """Check that today's code builds the same from a commit's files as the commit's own did."""
    recorded, read = older_trees.published(update.commit, root, stack), published_fingerprints(then[1].values())
    if different := sorted(name for name in {*recorded, *read} if recorded.get(name) != read.get(name)):
        raise SlipwayError(
            f"stack {stack}: today's code builds something else than update {update.number} of {', '.join(different)} "
            f"from the files of commit {update.commit[:7]}; check that commit out instead: "
            f"git worktree add ../{stack}-{update.commit[:7]} {update.commit[:7]}"
        )
    return then


def _files(config: StackConfig, images: Mapping[str, Content]) -> Iterator[str]:
    """Yield the files that a stack's images and their checks are made of, relative to the checkout."""
    yield from own_images.lists(config)
    for each in (each for image in images.values() for each in (image, image.checks) if each):
        dockerfile = each.spec.dockerfile
        own = (dockerfile, f"{dockerfile}{IGNORE}", IGNORE)
        yield from (posixpath.normpath(f"{each.spec.context}/{path}") for path in (*own, *each.files))


def _differing(root: Path, commit: str) -> list[str]:
    """Return the files of the checkout that differ from a commit, without those unknown to git."""
    return _listed(root, "diff", "--no-renames", "--name-only", "--relative", commit, "--")


def _is_of(root: Path, commit: str, path: str) -> bool:
    """Return whether an untracked file has the same content in a commit."""
    there = git.git(root, "rev-parse", "--verify", f"{commit}:./{path}")
    return there is not None and there == git.git(root, "hash-object", "--", path)


def _listed(root: Path, command: str, *words: str) -> list[str]:
    listing = git.read(root, command, "-z", *words)
    return [path for path in os.fsdecode(listing).split("\0") if path]
