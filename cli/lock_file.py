"""``slipway lock``: the digests of outside parents and the commits of branches, written to ``stacks/lock.toml``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from oci import client
from stacks import checks, graph, lock
from stacks.child_environment import child_environment
from stacks.config.stack_file import ROOT, read_stack, stack_names
from stacks.errors import SlipwayError, one_line


def update(stacks: Sequence[str], *, refresh: bool) -> Iterator[str]:
    """Write the lock for all stacks, or for those named; yield a line for each entry that was looked up.

    Raises:
        SlipwayError: a stack is wrong, or a registry or repository does not respond; then nothing is written.
    """
    references: set[str] = set()
    branches: set[tuple[str, str]] = set()
    for stack in stacks or stack_names():
        unlocked = graph.unlocked(read_stack(stack), f"stack {stack}")
        checks.run(checks.GRAPH_RULES, unlocked, unlocked.where)
        for spec in unlocked.specs:
            references.update(lock.tagged_parents(spec, unlocked.config.mirrors).values())
            branches.update(lock.branches(spec, unlocked.config.mirrors).values())
    before = lock.read(ROOT)
    current = {name: client.digest(name) for name in sorted(references)}
    current |= {lock.branch_key(*branch): commit(*branch) for branch in sorted(branches)}
    unchanged = before if stacks else {}
    date = datetime.now(UTC).date().isoformat() if refresh else lock.refresh_date(ROOT)
    lock.write(ROOT, {**unchanged, **current}, date)
    for name, digest in current.items():
        old = before.get(name)
        yield f"{name}: {digest}" if old in {None, digest} else f"{name}: {old} -> {digest}"


def commit(address: str, branch: str) -> str:
    """Return the newest commit of a repository's branch.

    Raises:
        SlipwayError: the repository does not respond, or has no such branch.
    """
    environment = child_environment("git", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    command = ["git", "ls-remote", address, f"refs/heads/{branch}"]
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if completed.returncode:
        raise SlipwayError(f"{address}: {one_line(completed.stderr.strip())}")
    if not completed.stdout:
        raise SlipwayError(f"{address} has no branch '{one_line(branch)}'")
    return completed.stdout.split()[0]
