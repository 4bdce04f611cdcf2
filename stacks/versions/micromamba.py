"""micromamba, which installs conda's packages: which releases are known, and the checksums of their programs."""

from __future__ import annotations

from stacks.versions.errors import Incompatible
from stacks.versions.pytorch import Machine
from stacks.versions.tables import table

_SOURCE = "a release without 'sha256' is in stacks/versions/micromamba.toml"


def micromamba_checksum(version: str, machine: Machine, *, field: str = "micromamba.version") -> str:
    """Return the SHA-256 of a release's program.

    Raises:
        Incompatible: no such release is in the table.
    """
    releases = table("micromamba")
    if version not in releases:
        raise Incompatible(field, version, "has no known SHA-256", tuple(releases), _SOURCE, known=False)
    checksum: str = releases[version][{"amd64": "64", "arm64": "aarch64"}[machine]]
    return checksum
