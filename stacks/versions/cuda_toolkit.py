"""CUDA toolkits: their compilations, their needs, and the parent images for each."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from containers.image.gpu.release_order import line, order
from stacks.versions.incompatible import Incompatible, check_listed, row
from stacks.versions.tables import newest_from, table

#: The editions of nvidia/cuda that images are built on.
Edition = Literal["base", "runtime", "devel"]

#: The architectures that images are built for, as their platforms name them.
Machine = Literal["amd64", "arm64"]

_PARENTS = "tags of NVIDIA's container-images/cuda, stacks/versions/cuda.toml"
_UNKNOWN = "is not a CUDA version of nvidia/cuda"


@dataclass(frozen=True, slots=True)
class CudaRelease:
    """One CUDA toolkit, as in the tags of nvidia/cuda.

    Attributes:
        version: the full version, such as ``12.1.1`` (``10.2`` is the one with two numbers).
        row: the version whose row it has: its own, or that of the nearest release if the table has none for it.
        line: its minor release, such as ``12.1``.
        archs: compute capabilities that it compiles, oldest first; also what it takes as PTX targets.
        archs_source: the source of that list.
        gcc: the newest major version of gcc that it takes as host compiler.
        driver: the Linux driver that belongs to it.
        distros: the distributions that parents exist for, such as ``ubuntu20.04``.
        cudnn: the parents' cuDNN as (part of the tag, version): ``(("cudnn8", "8.9.0.131"),)``.
        wheels: the name of its wheels in torch's indexes, ``cu121``.
    """

    version: str
    row: str
    line: str
    archs: tuple[str, ...]
    archs_source: str
    gcc: int
    driver: str
    distros: tuple[str, ...]
    cudnn: tuple[tuple[str, str], ...]
    wheels: str


def running_on(compiled: Iterable[str], arch: str) -> str | None:
    """Return the newest of some compute capabilities whose machine code runs on another: code for 8.0 on all 8.x."""
    return newest_from((each for each in compiled if order(each)[0] == order(arch)[0]), arch)


def cuda_versions() -> tuple[str, ...]:
    """Return every CUDA version in the table, oldest first."""
    return tuple(table("cuda")["release"])


@functools.cache
def cuda_release(version: str) -> CudaRelease:
    """Return what is known of CUDA ``version``.

    A release outside the table, which :func:`check_cuda_listed` refuses, has the row of the nearest one of its major
    version: of its own line if that is known, else of the newest before. Of its cuDNN, the major version is known
    alone.

    Raises Incompatible: no such release can be; for ``12.1``, the error suggests ``12.1.1``.
    """
    releases, lines = table("cuda")["release"], table("cuda")["line"]
    like = version if version in releases else _nearest(version)
    release = row(releases, like or version, "cuda", _UNKNOWN, _PARENTS)
    minor = lines.get(line(version)) or lines[line(like or version)]
    parts = release["cudnn"].items()
    return CudaRelease(
        version=version,
        row=like or version,
        line=line(version),
        archs=tuple(minor["archs"].split()),
        archs_source=minor.get("source") or f"ptxas of {minor['nvcc'][-1]}",
        gcc=minor["gcc"],
        driver=release["driver"],
        distros=tuple(release["distros"]),
        cudnn=tuple(parts if like == version else ((part, full.split(".")[0]) for part, full in parts)),
        wheels="cu" + line(version).replace(".", ""),
    )


def _nearest(version: str) -> str | None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return None
    own = [release for release in cuda_versions() if line(release) == line(version)]
    before = [release for release in cuda_versions() if order(release)[0] == order(version)[0]]
    return newest_from(own, version) or next(iter(own), None) or newest_from(before, version)


def check_cuda_listed(version: str) -> None:
    """Refuse a CUDA that the table does not have.

    Raises Unverified: it may exist; otherwise as :func:`cuda_release`.
    """
    instead = f"is taken to be as CUDA {cuda_release(version).row}"
    check_listed(table("cuda")["release"], version, "cuda", _UNKNOWN, _PARENTS, instead=instead)


def cuda_parent(
    version: str,
    edition: Edition,
    distro: str,
    *,
    cudnn: str | None = None,
    machine: Machine = "amd64",
    packages: Literal["apt", "dnf"] | None = None,
) -> str:
    """Return the tag of an nvidia/cuda image: ``12.1.1-cudnn8-devel-ubuntu20.04``.

    ``edition`` is ``base``, which never has cuDNN, ``runtime`` or ``devel``. ``cudnn`` is the major version of cuDNN to
    have in it; None for none. All tags are for amd64, most for arm64 as well. ``packages`` is the package manager of
    distributions that an error may suggest; None for any.

    Raises Incompatible: no such image was ever published.
    """
    release = cuda_release(version)
    lacks = table("cuda")["arm64"].get(release.row, {}) if machine == "arm64" else {}
    offered = [name for name in release.distros if name not in lacks.get("without", ())]
    if distro not in offered:
        kind = "nvidia/cuda image" if distro not in release.distros else f"nvidia/cuda image for {machine}"
        why, rows = f"has no {kind} of CUDA {version}", table("distros")
        built_on = [name for name in offered if "refused" not in rows[name]]
        allowed = [name for name in built_on if packages in {None, rows[name]["packages"]}]
        raise Incompatible("distro", distro, why, allowed, _PARENTS, known=False)
    if cudnn is None:
        return f"{version}-{edition}-{distro}"
    if edition == "base":
        raise Incompatible("distro", distro, "has no base edition with cuDNN", ("runtime", "devel"), _PARENTS)
    without = table("cuda")["release"][release.row].get("no_cudnn", {})
    parts = [] if distro in lacks.get("no_cudnn", ()) else release.cudnn
    fitting = {full.split(".")[0]: part for part, full in parts if distro not in without.get(part, ())}
    if cudnn not in fitting:
        on = distro if machine == "amd64" else f"{distro} for {machine}"
        why = f"is not the cuDNN of any nvidia/cuda image of CUDA {version} on {on}"
        raise Incompatible("cudnn", cudnn, why, tuple(fitting), _PARENTS)
    return f"{version}-{fitting[cudnn]}-{edition}-{distro}"


def parent_cudnn(version: str, major: str | None = None) -> str:
    """Return the cuDNN of a CUDA's parents, such as ``8.9.0.131``: the newest, of ``major`` if that is given.

    Raises Incompatible: no parent of this CUDA has any.
    """
    offered = [full for _, full in cuda_release(version).cudnn]
    if not offered:
        with_cudnn = [release for release in cuda_versions() if cuda_release(release).cudnn]
        raise Incompatible("cuda", version, "has no nvidia/cuda image with cuDNN", with_cudnn, _PARENTS)
    named = [full for full in offered if major in {None, full.split(".")[0]}]
    return max(named or offered, key=order)


DRIVER_LABEL: Final = "slipway.driver"
"""The label of an image with the least driver that it needs."""


def least_driver(major: str) -> str | None:
    """Return the oldest driver that programs of a major version of CUDA run with; None for an unknown one."""
    drivers: Mapping[str, str] = table("gpus")["driver"]
    return drivers.get(major)


def line_driver(release_line: str) -> str | None:
    """Return the driver that came with a release line of CUDA, such as ``12.1``; None for an unknown one."""
    drivers = [
        release["driver"] for version, release in table("cuda")["release"].items() if line(version) == release_line
    ]
    return min(drivers, key=order, default=None)


@functools.cache
def older_branches(release_line: str) -> Sequence[int]:
    """Return the branches of drivers before a release line's own with which NVIDIA's images of it start.

    Of a line without a row, all from the oldest one of the line before on.
    """
    rows: Mapping[str, list[int]] = table("gpus")["branches"]
    row = newest_from(rows, release_line)
    if row is None:
        return ()
    if row == release_line:
        return rows[row]
    own = line_driver(release_line)
    return range(rows[row][0], order(own)[0]) if own else ()
