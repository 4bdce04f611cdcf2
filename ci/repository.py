"""Commits made outside the work tree, and pushed with the job's token."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.child_program import run_program
from containers.errors import SlipwayError, one_line
from stacks.identity.git import git
from toolchain.checkout import Checkout

ROOT = Checkout.here().root
"""The checkout."""

_ROBOT = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
"""The name under which GitHub shows commits of workflows."""


def commit(root: Path, parent: str | None, changes: Mapping[str, str | None], message: str) -> str | None:
    """Commit new contents of files on top of a parent, and return the commit's hash; None if nothing changes.

    ``changes`` has the contents by path, None for a file to remove.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        run(root, "read-tree", *([parent] if parent else ["--empty"]), variables=index)
        for path, text in changes.items():
            if text is None:
                run(root, "update-index", "--force-remove", "--", path, variables=index)
                continue
            blob = run(root, "hash-object", "-w", "--stdin", stdin=text)
            run(root, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", variables=index)
        tree = run(root, "write-tree", variables=index)
    if parent and tree == run(root, "rev-parse", f"{parent}^{{tree}}"):
        return None
    names = zip(("NAME", "EMAIL"), _ROBOT, strict=True)
    robot = {f"GIT_{role}_{key}": value for key, value in names for role in ("AUTHOR", "COMMITTER")}
    return run(root, "commit-tree", tree, *(["-p", parent] if parent else []), "-m", message, variables=robot)


def follows(root: Path, commit: str, before: str | None) -> bool:
    """Return whether a commit is not an ancestor of another, which may be of a rewritten history."""
    return before is None or commit == before or git(root, "merge-base", "--is-ancestor", commit, before) is None


def push(root: Path, commit: str, branch: str, *, force: bool = False) -> None:
    """Push a commit to a branch of the remote ``origin``.

    Raises SlipwayError: the remote rejects it, as it does without ``force`` if the branch has other commits.
    """
    words = ["push", "--quiet", *(["--force"] if force else []), "origin", f"{commit}:refs/heads/{branch}"]
    run(root, *words, variables=_login())


def fetch(root: Path, branch: str) -> str | None:
    """Fetch a branch of the remote ``origin`` and return its commit; None if there is no such branch."""
    ref = f"refs/remotes/origin/{branch}"
    if not run(root, "ls-remote", "--heads", "origin", f"refs/heads/{branch}", variables=_login()):
        return None
    run(root, "fetch", "--quiet", "origin", f"+refs/heads/{branch}:{ref}", variables=_login())
    return run(root, "rev-parse", ref)


def run(root: Path, *words: str, stdin: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Run git with more environment variables, and return its output.

    Raises SlipwayError: git fails; with the last line of its error.
    """
    environment = child_environment("git", **(variables or {}))
    completed = run_program(["git", "-C", str(root), *words], NETWORK_SECONDS, env=environment, stdin=stdin)
    if completed.returncode:
        raise SlipwayError(f"git {words[0]}: {one_line(completed.stderr.strip().rpartition(chr(10))[2])}")
    return completed.stdout.strip()


def _login() -> dict[str, str]:
    """Return variables that configure git to send the job's token to GitHub, as actions/checkout does in a file."""
    token, server = os.environ.get("GITHUB_TOKEN"), os.environ.get("GITHUB_SERVER_URL")
    if not token or not server:
        return {}
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}/.extraheader",
        "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
    }
