"""Programs that are fetched by release: the checksums of micromamba and GitHub's runner, and a runner's last day."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

from containers.image.gpu.release_order import order
from stacks.versions.cuda_toolkit import Machine
from stacks.versions.incompatible import row
from stacks.versions.tables import table

_SOURCE = "a release without 'sha256' is in stacks/versions/micromamba.toml"

_DAYS: Final = timedelta(days=30)
"""How long after the next release GitHub promises a runner jobs.

"Any updates released for the software, including major, minor, or patch releases, are considered as an available
update. If you do not perform a software update within 30 days, the GitHub Actions service will not queue jobs to your
runner." (docs.github.com, "Self-hosted runners reference", Runner software updates)
"""

SOON: Final = timedelta(days=14)
"""How long before a runner's last day it is said."""


def micromamba_checksum(version: str, machine: Machine) -> str:
    """Return the SHA-256 of a release's program. Raises Incompatible: no such release is in the table."""
    release = row(table("micromamba"), version, "micromamba.version", "has no known SHA-256", _SOURCE)
    return str(release[{"amd64": "64", "arm64": "aarch64"}[machine]])


def runner_names() -> tuple[str, ...]:
    """Return every release in the table, as GitHub numbers them."""
    return tuple(table("runner"))


def runner_checksum(version: str, platform: str) -> str:
    """Return the SHA-256 of a release's archive for a platform such as ``linux/amd64``."""
    return str(table("runner")[version][{"linux/amd64": "x64", "linux/arm64": "arm64"}[platform]])


def old_runner(version: str, today: date) -> str:
    """Return the warning of a release of GitHub's runner that gets no job soon, or already; empty for others.

    It need not be in the table, which has the days of newer ones. A row of one's own may have no day.
    """
    newer = [
        (own["published"], name)
        for name, own in table("runner").items()
        if order(name) > order(version) and "published" in own
    ]
    if not newer:
        return ""
    published, successor = min(newer)
    ends = published + _DAYS
    if today < ends - SOON:
        return ""
    newest = max(runner_names(), key=order)
    return (
        f"GitHub may give runners of release {version} no job from {ends} on, {_DAYS.days} days after {successor}: "
        f"take {newest}"
    )
