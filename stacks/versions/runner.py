"""GitHub's runner: which releases are known, and the checksums of their archives."""

from __future__ import annotations

from stacks.versions.tables import table


def runner_names() -> tuple[str, ...]:
    """Return every release in the table, as GitHub numbers them."""
    return tuple(table("runner"))


def runner_checksum(version: str, platform: str) -> str:
    """Return the SHA-256 of a release's archive for a platform such as ``linux/amd64``."""
    checksum: str = table("runner")[version][{"linux/amd64": "x64", "linux/arm64": "arm64"}[platform]]
    return checksum
