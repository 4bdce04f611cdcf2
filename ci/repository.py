"""Commits made without touching the work tree, and pushed as the job."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stacks.errors import SlipwayError, one_line
from stacks.identity.git import git
from toolchain.checkout import Checkout

ROOT = Checkout.here().root
"""The checkout."""

_ROBOT = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
"""The name under which GitHub shows what a workflow has done."""


def commit(root: Path, parent: str | None, changes: Mapping[str, str | None], message: str) -> str | None:
    """Make a commit of a parent's tree with some files' new contents, None for those to remove; return its hash.

    None where that changes nothing.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        run(root, "read-tree", *([parent] if parent else ["--empty"]), more=index)
        for path, text in changes.items():
            if text is None:
                run(root, "update-index", "--force-remove", "--", path, more=index)
                continue
            blob = run(root, "hash-object", "-w", "--stdin", given=text)
            run(root, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", more=index)
        tree = run(root, "write-tree", more=index)
    if parent and tree == run(root, "rev-parse", f"{parent}^{{tree}}"):
        return None
    names = zip(("NAME", "EMAIL"), _ROBOT, strict=True)
    robot = {f"GIT_{role}_{key}": value for key, value in names for role in ("AUTHOR", "COMMITTER")}
    return run(root, "commit-tree", tree, *(["-p", parent] if parent else []), "-m", message, more=robot)


def follows(root: Path, commit: str, before: str | None) -> bool:
    """Say whether a commit is not older than another, which may be of a history that was rewritten."""
    return before is None or commit == before or git(root, "merge-base", "--is-ancestor", commit, before) is None


def push(root: Path, made: str, branch: str, *, force: bool = False) -> None:
    """Let a branch of the remote ``origin`` stand at a commit.

    Raises:
        SlipwayError: the remote refuses, as it does without ``force`` where the branch has gone on.
    """
    words = ["push", "--quiet", *(["--force"] if force else []), "origin", f"{made}:refs/heads/{branch}"]
    run(root, *words, more=_login())


def fetch(root: Path, branch: str) -> str | None:
    """Fetch a branch of the remote ``origin`` and return its commit; None where there is no such branch."""
    at = f"refs/remotes/origin/{branch}"
    if not run(root, "ls-remote", "--heads", "origin", f"refs/heads/{branch}", more=_login()):
        return None
    run(root, "fetch", "--quiet", "origin", f"+refs/heads/{branch}:{at}", more=_login())
    return run(root, "rev-parse", at)


def run(root: Path, *words: str, given: str = "", more: Mapping[str, str] | None = None) -> str:
    """Run git and return what it prints.

    Raises:
        SlipwayError: it fails; in its own last words.
    """
    done = subprocess.run(
        ["git", "-C", str(root), *words],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, **(more or {})},
        check=False,
    )
    if done.returncode:
        raise SlipwayError(f"git {words[0]}: {one_line(done.stderr.strip().rpartition(chr(10))[2])}")
    return done.stdout.strip()


def _login() -> dict[str, str]:
    """Return git's configuration by which the job's token is sent to GitHub, as actions/checkout would; in no file."""
    token, server = os.environ.get("GITHUB_TOKEN"), os.environ.get("GITHUB_SERVER_URL")
    if not token or not server:
        return {}
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}/.extraheader",
        "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
    }
