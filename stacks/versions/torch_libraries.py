"""Libraries that torch is built with: NCCL, cuDNN, MAGMA and HPC-X."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from containers.image.gpu.release_order import older, order
from stacks.versions.cuda_toolkit import Machine, cuda_release
from stacks.versions.incompatible import Incompatible, check_listed
from stacks.versions.pytorch import TorchRelease, torch_release, torch_versions, wheel_pins
from stacks.versions.tables import failing, table

_NCCL = "tags of NVIDIA/nccl, stacks/versions/nccl.toml"
_NOT_NCCL = "is not a known NCCL release"
_CUDNN = "nvidia-cudnn on the Python index, stacks/versions/cudnn.toml"
_MAGMA = "the pytorch channel, stacks/versions/magma.toml"
_HPCX = "stacks/versions/hpcx.toml; another archive can be named in slipway:hpcx"
_HPCX_ENDINGS = {"amd64": "x86_64.tbz", "arm64": "aarch64.tbz"}


@dataclass(frozen=True, slots=True)
class NcclRelease:
    """One NCCL release for one CUDA.

    Attributes:
        version: with the package revision, such as ``2.18.3-1``.
        tag: its git tag, ``v2.18.3-1``.
        apt: its version in NVIDIA's apt archive, ``2.18.3-1+cuda12.1``.
        apt_known: whether the table lists this package for the machine; it does not list all.
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
def nccl_release(version: str, cuda_version: str, *, machine: Machine = "amd64", field: str = "nccl") -> NcclRelease:
    """Return an NCCL release as it exists for a CUDA; one that :func:`check_nccl_listed` refuses by its number alone.

    Raises Incompatible: not a release (for ``2.18.3``, the error suggests ``2.18.3-1``), or too old for this CUDA.
    """
    releases, toolkit = nccl_versions(), cuda_release(cuda_version)
    if not re.fullmatch(r"\d+\.\d+\.\d+-\d+", version):
        raise Incompatible(field, version, _NOT_NCCL, releases, _NCCL, known=False)
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
        apt_known=version in table("nccl")["apt" if machine == "amd64" else "apt_arm64"].get(toolkit.line, ()),
        wheel=f"nvidia-nccl-cu{major}=={number}" if on_index else None,
    )


def check_nccl_listed(version: str, *, field: str = "nccl") -> None:
    """Refuse an NCCL release that the table does not have. Raises Unverified: naming those that it has."""
    instead = "is fetched by its number, and the build fails where there is none"
    check_listed(nccl_versions(), version, field, _NOT_NCCL, _NCCL, instead=instead)


def check_nccl_package(version: str, cuda_version: str, *, field: str = "nccl") -> None:
    """Refuse an NCCL release that cannot have a package for a CUDA in NVIDIA's apt archive.

    A package that may exist is not refused: see ``NcclRelease.apt_known``.

    Raises Incompatible: naming the packages that are known to exist; or as :func:`nccl_release`.
    """
    nccl_release(version, cuda_version, field=field)
    tables, minor = table("nccl"), cuda_release(cuda_version).line
    row = tables["packaged"].get(minor, {})
    if row and not order(row["from"]) <= order(version) <= order(row.get("until", version)):
        why = f"has no package for CUDA {minor} in NVIDIA's apt archive"
        source = f"{row['source']}, stacks/versions/nccl.toml"
        raise Incompatible(field, version, why, tables["apt"][minor], source)


def nccl_package_warnings(
    version: str, cuda_version: str, *, machine: Machine = "amd64", field: str = "nccl"
) -> list[str]:
    """Return a line if it is not known whether NVIDIA's apt archive has a package of a release for a CUDA."""
    release = nccl_release(version, cuda_version, machine=machine, field=field)
    if release.apt_known:
        return []
    package = release.apt if machine == "amd64" else f"{release.apt} for {machine}"
    return [f"slipway:{field}: NVIDIA's apt archive may not have {package}; the build fails without it"]


def nccl_warnings(version: str, *, machine: Machine = "amd64", field: str = "nccl") -> list[str]:
    """Return a line if a release of NCCL is known to fail on a machine."""
    if not (row := _fails_with(version, machine)):
        return []
    failing = _failing(f"NCCL {version}", row)
    return [f"slipway:{field}: {failing}; take {row['below']} or newer; {row['source']}"]


def check_cudnn_release(version: str, cuda_version: str) -> None:
    """Refuse a release of cuDNN that NVIDIA is not known to have a package of for a CUDA.

    Raises:
        Unverified: the table has others of its major version for this CUDA.
        Incompatible: the table has none.
    """
    releases = table("cudnn")["release"].get(cuda_version.split(".", 1)[0], ())
    why = f"is not a known cuDNN release for CUDA {cuda_version}"
    if version.split(".", maxsplit=1)[0] not in {release.split(".")[0] for release in releases}:
        raise Incompatible("cudnn", version, why, releases or ("a major version",), _CUDNN, known=False)
    instead = "is fetched by its number, and the build fails where there is none"
    check_listed(releases, version, "cudnn", why, _CUDNN, instead=instead)


def cudnn_warnings(version: str, *, field: str = "cudnn") -> list[str]:
    """Return a line if torch computes something wrong with a cuDNN; ``field`` is the key that chooses its release."""
    if not (row := _wrong_with(version)):
        return []
    fixed = f"take {row['below']} or newer by slipway:{field}"
    return [f"slipway:{field}: cuDNN {version} may compute {row['what']} wrong; {fixed}; {row['source']}"]


def wheel_warnings(torch: str, machine: Machine, *, cuda_version: str | None = None) -> list[str]:
    """Return a line for each wrong one of the cuDNN and NCCL that torch's wheel needs.

    ``cuda_version`` is the full one of the index that the wheel comes from; by default that is the Python index.
    """
    release = torch_release(torch)
    if machine != "amd64" and not release.cuda_arm64:
        return []
    lines = []
    if cuda_version is None or cuda_release(cuda_version).line == release.cuda:
        cudnn, nccl, is_of_index = _pinned(release.cudnn), _pinned(release.nccl), True
    else:
        pins = wheel_pins(torch, cuda_version)
        cudnn, nccl, is_of_index = pins.get("cudnn", ""), pins.get("nccl", ""), False
    if row := _wrong_with(cudnn):
        fixed = _newer(torch, lambda each: not _wrong_with(_pinned(each.cudnn))) if is_of_index else ""
        lines.append(f"the cuDNN {cudnn} of its wheel may compute {row['what']} wrong; {fixed}{row['source']}")
    if row := _fails_with(nccl, machine):
        fixed = _newer(torch, lambda each: not _fails_with(_pinned(each.nccl), machine)) if is_of_index else ""
        lines.append(f"{_failing(f'the NCCL {nccl} of its wheel', row)}; {fixed}{row['source']}")
    return [f"slipway:torch.version: torch {torch}: {line}" for line in lines]


def _newer(torch: str, is_right: Callable[[TorchRelease], bool]) -> str:
    """Return the next torch with a right library, as a part of a line; empty if there is none."""
    newer = (torch_release(each) for each in torch_versions() if order(each) > order(torch))
    return next((f"{each.version} has a newer one; " for each in newer if is_right(each)), "")


def _pinned(requirement: str) -> str:
    return requirement.removeprefix("==")


def _failing(nccl: str, row: Mapping[str, Any]) -> str:
    on = f" on {row['machine']}" if "machine" in row else ""
    return f"with {nccl}{on}, {row['what']}"


def _fails_with(version: str, machine: Machine) -> Mapping[str, Any] | None:
    """Return the row of what fails with an NCCL on a machine."""
    row = failing(table("nccl")["wrong"], version) if version else None
    return row if row and row.get("machine", machine) == machine else None


def _wrong_with(version: str) -> Mapping[str, Any] | None:
    """Return the row of what torch computes wrong with a cuDNN."""
    return failing(table("cudnn")["wrong"], version) if "." in version else None


@dataclass(frozen=True, slots=True)
class Magma:
    """MAGMA for one CUDA.

    Attributes:
        package: its name, ``magma-cuda113``: a package of conda's channel pytorch, or the start of an archive's name.
        archive: an archive of PyTorch's, ``magma-cuda132-2.6.1-1.tar.bz2``; None for a conda package.
    """

    package: str
    archive: str | None


def magma(cuda_version: str) -> Magma:
    """Return the MAGMA for a CUDA. Raises Incompatible: none was released for this CUDA, with the reason."""
    toolkit, tables = cuda_release(cuda_version), table("magma")
    if toolkit.line not in tables["package"]:
        gap = tables["gap"].get(toolkit.line, "no row of the table names this CUDA")
        why = f"has no MAGMA package ({gap}), and 'magma: false' builds without"
        raise Incompatible("magma", cuda_version, why, tables["package"], _MAGMA)
    package, archive = "magma-cuda" + toolkit.line.replace(".", ""), tables["archive"]
    archived = not older(toolkit.line, archive["cuda"])
    return Magma(package, f"{package}-{archive['version']}.tar.bz2" if archived else None)


def magma_archive(cuda_version: str, machine: Machine) -> str | None:
    """Return the archive of the MAGMA that torch's published wheels for a CUDA have inside; None if there is none."""
    package = table("magma")["package"]
    listed = machine == "amd64" and cuda_release(cuda_version).line in package
    return magma(cuda_version).archive if listed else None


def hpcx_archive(cuda_version: str, distro: str, *, machine: Machine = "amd64") -> str:
    """Return the HPC-X archive for a CUDA and a distribution: its path below Mellanox's download address.

    Raises Incompatible: none is known.
    """
    rows = table("hpcx").get(cuda_version.split(".", 1)[0], {})
    if distro not in rows:
        raise Incompatible("distro", distro, f"has no known HPC-X for CUDA {cuda_version}", tuple(rows), _HPCX)
    return f"{rows[distro]}-{_HPCX_ENDINGS[machine]}"


def hpcx_warnings(archive: str) -> list[str]:
    """Return a line if no public source is known to download an HPC-X archive for arm64."""
    ending = f"-{_HPCX_ENDINGS['arm64']}"
    known: list[str] = table("hpcx")["aarch64"]
    if not archive.endswith(ending) or archive.removesuffix(ending) in known:
        return []
    build = archive.removesuffix(ending).rpartition("ubuntu")[2]
    like = [f"{name}{ending}" for name in known if name.rpartition("ubuntu")[2].split("-")[:2] == build.split("-")[:2]]
    other = f"; {' or '.join(like)} is known" if like else ""
    return [f"slipway:hpcx: {archive} may not exist, and the build fails without it{other}; {_HPCX}"]
