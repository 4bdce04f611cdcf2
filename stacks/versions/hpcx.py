"""HPC-X: which archive goes with a CUDA and a distribution."""

from __future__ import annotations

from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import Machine
from stacks.versions.tables import table

_SOURCE = "stacks/versions/hpcx.toml; another archive can be named in slipway:hpcx"
_ENDINGS = {"amd64": "x86_64.tbz", "arm64": "aarch64.tbz"}


def hpcx_archive(cuda_version: str, distro: str, *, machine: Machine = "amd64", field: str = "distro") -> str:
    """Return the HPC-X archive for a CUDA and a distribution: its path below Mellanox's download address.

    Raises:
        Incompatible: none is known.
    """
    rows = table("hpcx").get(cuda_version.split(".", 1)[0], {})
    if distro not in rows:
        raise Incompatible(field, distro, f"has no known HPC-X for CUDA {cuda_version}", tuple(rows), _SOURCE)
    return f"{rows[distro]}-{_ENDINGS[machine]}"
