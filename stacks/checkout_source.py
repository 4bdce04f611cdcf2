"""The source of a checkout, as git knows it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stacks.identity.git import git


def source_of(root: Path) -> dict[str, Any]:
    """Return a checkout's ``uri``, ``revision`` and ``ref``, and whether it has ``uncommitted`` changes.

    The URI has no credentials. All three are empty if git knows none.
    """
    revision = (git(root, "rev-parse", "HEAD") or "").strip()
    address = (git(root, "remote", "get-url", "origin") or "").strip()
    changed = bool((git(root, "status", "--porcelain") or "").strip())
    return {"uri": _public(address), "revision": revision, "ref": _ref(root), "uncommitted": changed}


def _public(address: str) -> str:
    """Return a remote's address as a git+https URI without credentials; empty for a path of this machine."""
    if ssh := re.fullmatch(r"(?:ssh://)?(?:[^@/]+@)([^:/]+)[:/](.+)", address):
        return f"git+https://{ssh[1]}/{ssh[2].removesuffix('.git')}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return f"git+{parts.scheme}://{parts.hostname}{port}{parts.path.removesuffix('.git')}"


def _ref(root: Path) -> str:
    """Return the branch or tag of a checkout; in GitHub Actions, that of the run. Empty if there is none."""
    return os.environ.get("GITHUB_REF") or (git(root, "symbolic-ref", "--quiet", "HEAD") or "").strip()
