"""EFA installers with their plugin, and NVIDIA's PyTorch images."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from containers.image.gpu.release_order import order
from stacks.versions.incompatible import Incompatible, check_listed
from stacks.versions.tables import applying, failing, table

_EFA = "Elastic Fabric Adapter release notes, stacks/versions/efa.toml"
_NGC = "NVIDIA's PyTorch release notes, stacks/versions/ngc.toml"
_NOT_EFA = "is not a known EFA installer"
_NOT_NGC = "is not a known release of nvcr.io/nvidia/pytorch"
_OFI = re.compile(r"v?(?P<number>\d+\.\d+\.\d+)(?P<suffix>-aws)?")


@dataclass(frozen=True, slots=True)
class EfaInstaller:
    """One EFA installer.

    Attributes:
        version: such as ``1.48.0``.
        ofi_nccl: the aws-ofi-nccl that it installs; None where it installs none, or the table does not know it.
        disable_ngc: whether it needs ``--disable-ngc`` on an NGC parent to install the plugin.
        ubuntus: the Ubuntu releases that it supports.
    """

    version: str
    ofi_nccl: str | None
    disable_ngc: bool
    ubuntus: tuple[str, ...]


def efa_versions() -> tuple[str, ...]:
    """Return every EFA installer in the table, oldest first."""
    return tuple(table("efa")["installer"])


@functools.cache
def efa_installer(version: str) -> EfaInstaller:
    """Return what is known of an EFA installer.

    For one outside the table, which :func:`check_efa_listed` refuses, the rules between versions hold.

    Raises Incompatible: not a version. ``latest`` is refused, because an installer is always pinned.
    """
    tables = table("efa")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Incompatible("efa.installer", version, _NOT_EFA, efa_versions(), _EFA, known=False)
    installer = tables["installer"].get(version, {})
    ubuntus = (
        ubuntu
        for ubuntu, span in tables["ubuntu"].items()
        if order(span.get("first", "0")) <= order(version) <= order(span.get("last", version))
    )
    return EfaInstaller(
        version=version,
        ofi_nccl=installer.get("ofi_nccl"),
        disable_ngc=order(version) >= order(tables["rule"]["disable_ngc"]["installer"]),
        ubuntus=tuple(ubuntus),
    )


def check_efa_listed(version: str) -> None:
    """Refuse an EFA installer that the table does not have. Raises Unverified: naming those that it has."""
    instead = "follows the rules for installers of its number, with the plugin that efa.ofiNccl names"
    check_listed(efa_versions(), version, "efa.installer", _NOT_EFA, _EFA, instead=instead)


def needs_sync_memops(installer: str, nccl: str) -> bool:
    """Return whether this installer with this NCCL needs ``FI_EFA_SET_CUDA_SYNC_MEMOPS=0`` in the environment."""
    rule = table("efa")["rule"]["sync_memops"]
    return order(efa_installer(installer).version) < order(rule["installer"]) and order(nccl) >= order(rule["nccl"])


def check_efa_ubuntu(installer: str, parent: str) -> None:
    """Refuse an EFA installer without support for the Ubuntu of an NGC parent, if that is known.

    Raises Incompatible: naming the installers that do.
    """
    ubuntu = ngc_release(parent).ubuntu
    if ubuntu and ubuntu not in efa_installer(installer).ubuntus:
        why = f"does not support Ubuntu {ubuntu}, the system of nvcr.io/nvidia/pytorch:{parent}-py3"
        fitting = [version for version in efa_versions() if ubuntu in efa_installer(version).ubuntus]
        raise Incompatible("efa.installer", installer, why, fitting, _EFA)


def efa_environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of OpenMPI, NCCL and PMIx that a stack may set, with its values or the defaults.

    Raises Incompatible: EFA would silently not be used with a value.
    """
    defaults, fixed = table("efa")["environment"], table("efa")["fixed"]
    for name, value in values.items():
        rule = fixed.get(name)
        if rule and value != rule["value"] and not re.fullmatch(rule.get("values", ""), value):
            raise Incompatible(f"environment.{name}", value, rule["why"], (rule["value"],), rule["source"])
    return {name: values.get(name, default) for name, default in defaults.items()}


def ofi_nccl_tag(version: str) -> str:
    """Return the git tag of an aws-ofi-nccl release, ``v1.7.3-aws`` or ``v1.19.0``.

    Raises:
        Incompatible: not a version, or its ``-aws`` suffix is missing (below 1.14.0) or superfluous (from 1.14.0 on).
    """
    rule = table("efa")["rule"]["aws_suffix"]
    match = _OFI.fullmatch(version)
    if not match:
        raise Incompatible(
            "efa.ofiNccl", version, "is not an aws-ofi-nccl version", ("1.7.4-aws", "1.19.0"), rule["source"]
        )
    right = match["number"] + ("-aws" if order(match["number"]) < order(rule["ofi_nccl"]) else "")
    if version.removeprefix("v") != right:
        why = f"is not how that release is named (-aws is there only below {rule['ofi_nccl']})"
        raise Incompatible("efa.ofiNccl", version, why, (right,), rule["source"])
    return f"v{right}"


def check_ofi_nccl(version: str, nccl: str, *, field: str = "nccl") -> None:
    """Refuse an NCCL that is too old for an aws-ofi-nccl.

    Raises Incompatible: naming the oldest NCCL that goes with it.
    """
    rule = table("efa")["rule"]["ofi_needs_nccl"]
    if order(version) >= order(rule["ofi_nccl"]) and order(nccl) < order(rule["nccl"]):
        why = f"is too old for aws-ofi-nccl {version}"
        raise Incompatible(field, nccl, why, (f"{rule['nccl']} and newer",), rule["source"])


def check_ofi_libfabric(version: str, installer: str) -> None:
    """Refuse an aws-ofi-nccl that the libfabric of an EFA installer is too old to build.

    Raises Incompatible: naming the newest line of the plugin and the oldest installer that would do.
    """
    rule = table("efa")["rule"]["ofi_needs_libfabric"]
    if order(version.removeprefix("v")) >= order(rule["ofi_nccl"]) and order(installer) < order(rule["installer"]):
        why = f"needs libfabric {rule['libfabric']}, which EFA installer {installer} has not"
        allowed = (f"a release before {rule['ofi_nccl']}", f"efa.installer {rule['installer']} and newer")
        raise Incompatible("efa.ofiNccl", version, why, allowed, rule["source"])


def plugin_warnings(version: str) -> list[str]:
    """Return a line if an aws-ofi-nccl is known to fail."""
    row = failing(table("efa")["wrong"], version)
    if row is None:
        return []
    mend = f"take installer {row['installer']} or newer, or {row['below']} or newer in slipway:efa.ofiNccl"
    return [f"slipway:efa: with aws-ofi-nccl {version}, {row['what']}; {mend}; {row['source']}"]


@dataclass(frozen=True, slots=True)
class NgcRelease:
    """One of NVIDIA's PyTorch images. A field is None where the table is not certain of it.

    Attributes:
        version: such as ``25.03``; the image is ``nvcr.io/nvidia/pytorch:25.03-py3``.
        ubuntu: its Ubuntu release.
        python: its CPython version.
        cuda: its CUDA version.
        torch: its torch, a build of NVIDIA's own.
        nccl: its NCCL, without a package revision.
    """

    version: str
    ubuntu: str | None
    python: str | None
    cuda: str | None
    torch: str | None
    nccl: str | None


def ngc_versions() -> tuple[str, ...]:
    """Return every release in the table, oldest first."""
    return tuple(table("ngc"))


@functools.cache
def ngc_release(version: str) -> NgcRelease:
    """Return what is known of one of NVIDIA's PyTorch images; nothing of one that :func:`check_ngc_listed` refuses.

    Raises Incompatible: not a year and a month.
    """
    if not re.fullmatch(r"\d\d\.(0[1-9]|1[0-2])", version):
        raise Incompatible("ngc", version, _NOT_NGC, ngc_versions(), _NGC, known=False)
    values = table("ngc").get(version, {})
    return NgcRelease(version, **{key: values.get(key) for key in ("ubuntu", "python", "cuda", "torch", "nccl")})


def ngc_systems(version: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the Pythons and the Ubuntu releases that an image may have, oldest first.

    Its own Python, if a source confirms it, and the Ubuntus with that Python; otherwise those of all images.
    """
    rows = table("ngc")
    row = rows.get(version, {})
    sure = row.get("python") if "python" not in row.get("weak", ()) else None
    fitting = [each for each in rows.values() if sure in {None, each.get("python")}]
    pythons, ubuntus = ({each[key] for each in fitting if key in each} for key in ("python", "ubuntu"))
    return tuple(sorted(pythons, key=order)), tuple(sorted(ubuntus, key=order))


def check_ngc_listed(version: str) -> None:
    """Refuse one of NVIDIA's PyTorch images that the table does not have.

    Raises Unverified: naming those that it has.
    """
    instead = f"compiles for what CUDA {compiling_cuda(version)} knows; its Ubuntu, Python and NCCL are not checked"
    check_listed(table("ngc"), version, "ngc", _NOT_NGC, _NGC, instead=instead)


def compiling_cuda(version: str) -> str:
    """Return the CUDA of one of NVIDIA's PyTorch images; of an unknown one, that of the release before it."""
    return str(applying(table("ngc"), ngc_release(version).version)["cuda"])


def check_nccl_not_older(parent: str, nccl: str) -> None:
    """Refuse an NCCL that is older than the one in an NGC parent: it would silently replace the newer one.

    Raises Incompatible: naming the parent's NCCL.
    """
    theirs = ngc_release(parent).nccl
    if theirs and order(nccl)[:3] < order(theirs):
        why = f"is older than the NCCL of nvcr.io/nvidia/pytorch:{parent}-py3"
        raise Incompatible("nccl.version", nccl, why, (f"{theirs} and newer",), _NGC)
