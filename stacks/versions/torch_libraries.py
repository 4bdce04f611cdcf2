"""Libraries beside torch: NCCL, MAGMA, FlashAttention, DeepSpeed, TransformerEngine."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stacks.versions.cuda_toolkit import cuda_release
from stacks.versions.incompatible import Incompatible
from stacks.versions.tables import applying, line, newest_from, older, order, table

#: The extras that the table knows, as components of the torch family are named.
Extra = Literal["flash-attention", "flash-attention3", "deepspeed", "transformer-engine"]

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
def nccl_release(version: str, cuda_version: str, *, field: str = "nccl") -> NcclRelease:
    """Return an NCCL release as it exists for a CUDA.

    Raises:
        Incompatible: no such release (``2.18.3`` is answered with ``2.18.3-1``), or too old for this CUDA.
    """
    releases, toolkit = nccl_versions(), cuda_release(cuda_version)
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


def check_nccl_package(version: str, cuda_version: str, *, field: str = "nccl") -> None:
    """Refuse an NCCL release that NVIDIA's apt archive cannot have a package of for a CUDA.

    What may be there is not refused: see ``NcclRelease.apt_known``.

    Raises:
        Incompatible: naming those that are known to be there; or as :func:`nccl_release`.
    """
    nccl_release(version, cuda_version, field=field)
    tables, minor = table("nccl"), cuda_release(cuda_version).line
    row = tables["packaged"].get(minor, {})
    if row and not order(row["from"]) <= order(version) <= order(row.get("until", version)):
        why = f"has no package for CUDA {minor} in NVIDIA's apt archive"
        source = f"{row['source']}, stacks/versions/nccl.toml"
        raise Incompatible(field, version, why, tables["apt"][minor], source)


def nccl_package_doubts(version: str, cuda_version: str, *, field: str = "nccl") -> list[str]:
    """Return a line where it is not known whether NVIDIA's apt archive has a package of a release for a CUDA."""
    release = nccl_release(version, cuda_version, field=field)
    if release.apt_known:
        return []
    return [f"slipway:{field}: not known to be in NVIDIA's apt archive: {release.apt}; if it is not, the build fails"]


@dataclass(frozen=True, slots=True)
class Magma:
    """MAGMA for one CUDA.

    Attributes:
        package: its name, ``magma-cuda113``: a package of conda's channel pytorch, or how an archive is called.
        archive: an archive of PyTorch's, ``magma-cuda132-2.6.1-1.tar.bz2``; None for a conda package.
    """

    package: str
    archive: str | None


def magma(cuda_version: str, *, field: str = "magma") -> Magma:
    """Return the MAGMA for a CUDA.

    Raises:
        Incompatible: none was released for this CUDA, with the reason.
    """
    toolkit, tables = cuda_release(cuda_version), table("magma")
    if toolkit.line not in tables["package"]:
        gap = tables["gap"].get(toolkit.line, "no row of the table names this CUDA")
        why = f"has no MAGMA package ({gap}), and 'magma: false' builds without"
        raise Incompatible(field, cuda_version, why, tables["package"], _MAGMA)
    package, archive = "magma-cuda" + toolkit.line.replace(".", ""), tables["archive"]
    archived = not older(toolkit.line, archive["cuda"])
    return Magma(package, f"{package}-{archive['version']}.tar.bz2" if archived else None)


def _needs(name: str, version: str) -> Mapping[str, Any]:
    """Return the row of an extra's version: the newest from which on it applies. A commit's is the newest of all."""
    rows: Mapping[str, Mapping[str, Any]] = table("extras")[name]
    if "any" in rows:
        return rows["any"]
    return applying(rows, version) if "." in version else rows[max(rows, key=order)]


def extra_archs(name: str, version: str, archs: str) -> str:
    """Return the compute capabilities whose machine code the wheel of an extra has, when it is to run on ``archs``.

    Those are ``archs`` themselves, unless the table says that the extra has code for some only, and no PTX: then either
    those from its oldest on, or, of the few that it is written for, what runs on each (``8.0`` on ``8.9``).

    Args:
        name: which extra; one that the table does not know compiles for whatever it is asked for.
        version: its version, or a commit.
        archs: the compute capabilities to run on, in canonical form.
    """
    row = _needs(name, version) if name in table("extras") else {}
    asked = [arch.removesuffix("+PTX") for arch in archs.split()]
    if "archs_min" in row:
        return " ".join(arch for arch in asked if order(arch) >= order(row["archs_min"]))
    if "archs" in row:
        running = {newest_from(_of_generation(row["archs"], arch), arch) for arch in asked}
        return " ".join(arch for arch in row["archs"] if arch in running)
    return archs


def _of_generation(archs: Iterable[str], like: str) -> list[str]:
    """Return those of ``archs`` whose machine code runs on GPUs of the same major capability."""
    return [arch for arch in archs if order(arch)[0] == order(like)[0]]


def _too_old(row: Mapping[str, Any], what: str, version: str) -> bool:
    bound = row.get(f"{what}_below")
    return bound is not None and not older(version, bound)


def _new_enough(name: Extra, what: str, version: str) -> tuple[str, ...]:
    """Return from which version of an extra on none is too old for a CUDA or torch, as a refusal says it."""
    rows: Mapping[str, Mapping[str, Any]] = table("extras")[name]
    newest = max((row for row in rows if _too_old(rows[row], what, version)), key=order)
    return tuple(f"{row} and newer" for row in rows if order(row) > order(newest))[:1]


def check_extra(
    name: Extra,
    version: str,
    *,
    cuda_version: str,
    python: str | None = None,
    cudnn: str | None = None,
    torch: str | None = None,
    archs: str | None = None,
    field: str | None = None,
) -> None:
    """Refuse an extra that CUDA, cuDNN, Python or torch does not go with, or that has no code for any of ``archs``.

    Versions between the table's rows have the older row's; of a commit, only what holds for all is known.

    Args:
        name: which extra.
        version: its version, or a commit.
        cuda_version: full CUDA version.
        python: Python's version, if known.
        cudnn: cuDNN's version, if known.
        torch: torch's version, if known.
        archs: the compute capabilities to compile for, in canonical form.
        field: where the extra stands in the config; ``extras.<name>`` if not given.

    Raises:
        Incompatible: naming the oldest that does, or the capabilities that it has code for.
    """
    row, where = _needs(name, version), field or f"extras.{name}"
    source = row.get("source", f"setup.py of {name}")
    if "." in version or "any" in table("extras")[name]:
        for what, ours in {"cuda": line(cuda_release(cuda_version).version), "python": python, "cudnn": cudnn}.items():
            oldest = row.get(f"{what}_min")
            if ours and oldest and older(ours, oldest):
                why = f"does not build with {what} {ours}"
                raise Incompatible(where, version, why, (f"{what} {oldest} and newer",), source)
        for what, ours in {"cuda": line(cuda_release(cuda_version).version), "torch": torch}.items():
            if ours and _too_old(row, what, ours):
                why = f"does not build with {what} {ours}"
                raise Incompatible(where, version, why, _new_enough(name, what, ours), source)
    if archs and not extra_archs(name, version, archs):
        why = f"has no code for any of the compute capabilities {archs}"
        allowed = row.get("archs") or (f"{row['archs_min']} and newer",)
        raise Incompatible(where, version, why, allowed, source)
