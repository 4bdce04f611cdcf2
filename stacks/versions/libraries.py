"""Libraries beside torch: NCCL, MAGMA, FlashAttention, DeepSpeed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from stacks.versions.errors import Incompatible
from stacks.versions.tables import line, newest_from, order, table
from stacks.versions.toolkit import cuda

#: The extras that the table knows.
Extra = Literal["flash-attn", "flash-attn-3", "deepspeed", "transformer-engine"]

_NCCL = "tags of NVIDIA/nccl, stacks/versions/nccl.toml"
_MAGMA = "the pytorch channel, stacks/versions/magma.toml"


@dataclass(frozen=True, slots=True)
class NcclRelease:
    """One NCCL release for one CUDA.

    Attributes:
        version: with the package revision, such as ``2.18.3-1``.
        tag: its git tag, ``v2.18.3-1``.
        apt: its version in NVIDIA's apt archive, ``2.18.3-1+cuda12.1``.
        apt_known: whether the table knows that this package exists; it does not know all.
        wheel: its requirement on the Python index, ``nvidia-nccl-cu12==2.18.3``; None where there is none.
    """

    version: str
    tag: str
    apt: str
    apt_known: bool
    wheel: str | None


def nccl_versions() -> tuple[str, ...]:
    """Return every NCCL release in the table, oldest first."""
    return tuple(table("nccl")["release"])


@functools.cache
def nccl(version: str, cuda_version: str, *, field: str = "nccl") -> NcclRelease:
    """Return an NCCL release as it exists for a CUDA.

    Raises:
        Incompatible: no such release (``2.18.3`` is answered with ``2.18.3-1``), or too old for this CUDA.
    """
    releases, toolkit = nccl_versions(), cuda(cuda_version)
    if version not in releases:
        raise Incompatible(field, version, "is not a known NCCL release", releases, _NCCL, known=False)
    major = toolkit.version.split(".", 1)[0]
    first = table("nccl")["first"][major]
    if order(version) < order(first["nccl"]):
        allowed = tuple(release for release in releases if order(release) >= order(first["nccl"]))
        raise Incompatible(field, version, f"is too old for CUDA {cuda_version}", allowed, first["source"])
    number = version.rpartition("-")[0]
    on_index = number in table("nccl")["pypi"].get(major, ())
    return NcclRelease(
        version=version,
        tag=f"v{version}",
        apt=f"{version}+cuda{toolkit.line}",
        apt_known=version in table("nccl")["apt"].get(toolkit.line, ()),
        wheel=f"nvidia-nccl-cu{major}=={number}" if on_index else None,
    )


def magma_package(cuda_version: str, *, field: str = "magma") -> str:
    """Return the MAGMA package for a CUDA, ``magma-cuda113``.

    Raises:
        Incompatible: none was released for this CUDA, with the reason.
    """
    toolkit, tables = cuda(cuda_version), table("magma")
    if toolkit.line not in tables["package"]:
        why = f"has no MAGMA package ({tables['gap'][toolkit.line]})"
        raise Incompatible(field, cuda_version, why, tables["package"], _MAGMA)
    return "magma-cuda" + toolkit.line.replace(".", "")


def check_extra(
    name: Extra,
    version: str,
    *,
    cuda_version: str,
    python: str | None = None,
    cudnn: str | None = None,
    archs: str | None = None,
    field: str | None = None,
) -> None:
    """Refuse an extra that this CUDA, cuDNN or Python is too old for, or that has no code for any of ``archs``.

    Versions between the table's rows have the older row's; of a commit, only what holds for all is known.

    Args:
        name: which extra.
        version: its version, or a commit.
        cuda_version: full CUDA version.
        python: Python's version, if known.
        cudnn: cuDNN's version, if known.
        archs: the compute capabilities to compile for, in canonical form.
        field: where the extra stands in the config; ``extras.<name>`` if not given.

    Raises:
        Incompatible: naming the oldest that does, or the capabilities that it has code for.
    """
    rows, where = table("extras")[name], field or f"extras.{name}"
    known = rows[newest_from(rows, version) or next(iter(rows))] if "any" not in rows and "." in version else {}
    row = rows.get("any", known)
    source = row.get("source", f"setup.py of {name}")
    for what, ours in {"cuda": line(cuda(cuda_version).version), "python": python, "cudnn": cudnn}.items():
        oldest = row.get(f"{what}_min")
        if ours and oldest and order(ours) < order(oldest):
            raise Incompatible(
                where, version, f"does not build with {what} {ours}", (f"{what} {oldest} and newer",), source
            )
    if archs and "archs" in row and not set(row["archs"]) & {arch.removesuffix("+PTX") for arch in archs.split()}:
        why = f"has no code for any of the compute capabilities {archs}"
        raise Incompatible(where, version, why, row["archs"], source)
