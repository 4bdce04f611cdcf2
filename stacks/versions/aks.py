"""GPU nodes of AKS, and what images for them have: DOCA and the NeMo Framework Launcher."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from containers.image.gpu.release_order import order
from stacks.versions.efa_ngc import ngc_release
from stacks.versions.incompatible import Incompatible, check_listed, row
from stacks.versions.tables import table

_AKS = "stacks/versions/aks.toml"
_DOCA = "stacks/versions/doca.toml"
_NEMO = "stacks/versions/nemo.toml"
_NOT_DOCA = "is not a known release of DOCA"
_NOT_LAUNCHER = "is no release of the NeMo Framework Launcher"
_NOT_NEMO = "is no known release of nvcr.io/nvidia/nemo"


@dataclass(frozen=True, slots=True)
class Topology:
    """The file that gives NCCL a node's topology.

    Attributes:
        name: in the folder ``topology/`` of Azure/azhpc-images, and in the image's ``/etc``.
        commit: of that repository.
        sha256: of the file, in hexadecimal.
    """

    name: str
    commit: str
    sha256: str


@dataclass(frozen=True, slots=True)
class AksNode:
    """One kind of GPU node of AKS.

    Attributes:
        name: such as ``aks-ndv5``.
        sku: the VM's size.
        platform: of the VM, such as ``linux/amd64``.
        archs: the compute capability of its GPUs, such as ``9.0``.
        gpus: how many ``nvidia.com/gpu`` it has.
        rdma: how many ``rdma/ib`` it has.
        topology: None where NCCL reads it from the system.
        profile: the settings that its jobs run with, a file of ``dockerfiles/megatron/profiles``.
    """

    name: str
    sku: str
    platform: str
    archs: str
    gpus: int
    rdma: int
    topology: Topology | None
    profile: str


@functools.cache
def aks_node(name: str) -> AksNode:
    """Return the row of a kind of node. Raises Incompatible: the table does not know it."""
    values = row(table("aks"), name, "nodes", "is no known GPU node of AKS", _AKS)
    topology = Topology(**values["topology"]) if "topology" in values else None
    return AksNode(**{"profile": name, **values, "name": name, "topology": topology})


def check_platform(name: str, platform: str) -> None:
    """Refuse an image for another platform than its nodes have.

    Raises Incompatible: naming the platform of the nodes.
    """
    node = aks_node(name)
    if platform != node.platform:
        why = f"is not the platform of {name} ({node.sku})"
        raise Incompatible("platform", platform, why, (node.platform,), _AKS)


def doca_machine(version: str, parent: str, machine: str) -> str:
    """Return the name that DOCA's repositories have for a machine, ``amd64`` or ``arm64``.

    The release must be for the Ubuntu of ``parent``, a release of NVIDIA's PyTorch image. If either is not known, the
    build fails where there are no packages.

    Raises Incompatible: not a release, or it has no packages for that Ubuntu.
    """
    releases, ubuntu = table("doca")["release"], ngc_release(parent).ubuntu
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Incompatible("doca", version, _NOT_DOCA, tuple(releases), _DOCA, known=False)
    if ubuntu and version in releases and ubuntu not in releases[version]["ubuntu"]:
        why = f"has no packages for Ubuntu {ubuntu}, the system of nvcr.io/nvidia/pytorch:{parent}-py3"
        fitting = [name for name, values in releases.items() if ubuntu in values["ubuntu"]]
        raise Incompatible("doca", version, why, fitting, _DOCA)
    machines: dict[str, str] = table("doca")["machine"]
    return machines[machine]


def check_doca_listed(version: str) -> None:
    """Refuse a release of DOCA that the table does not have. Raises Unverified: naming those that it has."""
    instead = "is fetched for the parent's Ubuntu, and the build fails where there are no packages of it"
    check_listed(table("doca")["release"], version, "doca", _NOT_DOCA, _DOCA, instead=instead)


def check_launcher_listed(version: str) -> None:
    """Refuse a release of the NeMo Framework Launcher that the table does not have.

    Raises Unverified: naming those that it has.
    """
    instead = "is taken at launcher.commit, for jobs in launcher.nemo"
    check_listed(table("nemo")["launcher"], version, "launcher.version", _NOT_LAUNCHER, _NEMO, instead=instead)


def launcher_commit(version: str) -> str:
    """Return the commit of a release of the NeMo Framework Launcher.

    Raises Incompatible: the table does not know it; the error says which keys do in place of the table.
    """
    why = f"{_NOT_LAUNCHER}; another needs launcher.commit, launcher.nemo and `slipway:unverified: true`"
    return str(row(table("nemo")["launcher"], version, "launcher.version", why, _NEMO)["commit"])


def launcher_nemo(version: str) -> str:
    """Return the NeMo that a launcher's own configuration names."""
    return str(table("nemo")["launcher"][version]["nemo"])


def check_nemo(launcher: str, nemo: str) -> None:
    """Refuse a NeMo newer than that of a launcher in the table.

    Raises Incompatible: naming those that go with the launcher.
    """
    if launcher in table("nemo")["launcher"] and nemo in _nemos():
        fitting = [release for release in _nemos() if order(release) <= order(launcher_nemo(launcher))]
        if nemo not in fitting:
            raise Incompatible("launcher.nemo", nemo, f"is newer than launcher {launcher} was made for", fitting, _NEMO)


def check_nemo_listed(nemo: str) -> None:
    """Refuse a NeMo that no launcher of the table names. Raises Unverified: naming those that one does."""
    instead = "is the image of the launcher's jobs, whatever the launcher was made for"
    check_listed(_nemos(), nemo, "launcher.nemo", _NOT_NEMO, _NEMO, instead=instead)


def _nemos() -> tuple[str, ...]:
    return tuple(dict.fromkeys(values["nemo"] for values in table("nemo")["launcher"].values()))
