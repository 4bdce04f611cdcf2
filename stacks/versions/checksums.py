"""Checksums of programs that are fetched by release: micromamba, and GitHub's runner."""

from __future__ import annotations

from stacks.versions.cuda_toolkit import Machine
from stacks.versions.incompatible import row
from stacks.versions.tables import table

_SOURCE = "a release without 'sha256' is in stacks/versions/micromamba.toml"


def micromamba_checksum(version: str, machine: Machine) -> str:
    """Return the SHA-256 of a release's program. Raises Incompatible: no such release is in the table."""
    release = row(table("micromamba"), version, "micromamba.version", "has no known SHA-256", _SOURCE)
    checksum: str = release[{"amd64": "64", "arm64": "aarch64"}[machine]]
    return checksum


def runner_names() -> tuple[str, ...]:
    """Return every release in the table, as GitHub numbers them."""
    return tuple(table("runner"))


def runner_checksum(version: str, platform: str) -> str:
    """Return the SHA-256 of a release's archive for a platform such as ``linux/amd64``."""
    checksum: str = table("runner")[version][{"linux/amd64": "x64", "linux/arm64": "arm64"}[platform]]
    return checksum
