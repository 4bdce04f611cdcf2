"""GPU nodes of AKS, and what images for them have: DOCA and the NeMo Framework Launcher."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from stacks.versions.efa_ngc import ngc_release
from stacks.versions.incompatible import Incompatible, row
from stacks.versions.tables import order, table

_AKS = "stacks/versions/aks.toml"
_DOCA = "stacks/versions/doca.toml"
_NEMO = "stacks/versions/nemo.toml"


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
    """

    name: str
    sku: str
    platform: str
    archs: str
    gpus: int
    rdma: int
    topology: Topology | None


@functools.cache
def aks_node(name: str, *, field: str = "nodes") -> AksNode:
    """Return the row of a kind of node.

    Raises:
        Incompatible: the table does not know it.
    """
    values = row(table("aks"), name, field, "is no known GPU node of AKS", _AKS)
    topology = Topology(**values["topology"]) if "topology" in values else None
    return AksNode(**{**values, "name": name, "topology": topology})


def check_platform(name: str, platform: str, *, field: str = "platform") -> None:
    """Refuse an image for another platform than its nodes have.

    Raises:
        Incompatible: naming the platform of the nodes.
    """
    node = aks_node(name)
    if platform != node.platform:
        why = f"is not the platform of {name} ({node.sku})"
        raise Incompatible(field, platform, why, (node.platform,), _AKS)


def doca_machine(version: str, parent: str, machine: str, *, field: str = "doca") -> str:
    """Return the name that DOCA's repositories have for a machine, ``amd64`` or ``arm64``.

    The release must be for the Ubuntu of ``parent``, a release of NVIDIA's PyTorch image. If that Ubuntu is not known,
    the build fails on a wrong one.

    Raises:
        Incompatible: the table does not know the release, or it has no packages for that Ubuntu.
    """
    releases = table("doca")["release"]
    release, ubuntu = row(releases, version, field, "is not a known release of DOCA", _DOCA), ngc_release(parent).ubuntu
    if ubuntu and ubuntu not in release["ubuntu"]:
        why = f"has no packages for Ubuntu {ubuntu}, the system of nvcr.io/nvidia/pytorch:{parent}-py3"
        fitting = [name for name, values in releases.items() if ubuntu in values["ubuntu"]]
        raise Incompatible(field, version, why, fitting, _DOCA)
    machines: dict[str, str] = table("doca")["machine"]
    return machines[machine]


def launcher_commit(version: str, *, field: str = "launcher.version") -> str:
    """Return the commit of a release of the NeMo Framework Launcher.

    Raises:
        Incompatible: the table does not know it.
    """
    why = "is no release of the NeMo Framework Launcher"
    commit: str = row(table("nemo")["launcher"], version, field, why, _NEMO)["commit"]
    return commit


def launcher_nemo(version: str) -> str:
    """Return the NeMo that a launcher's own configuration names."""
    nemo: str = table("nemo")["launcher"][version]["nemo"]
    return nemo


def check_nemo(launcher: str, nemo: str, *, field: str = "launcher.nemo") -> None:
    """Refuse a NeMo that is unknown, or newer than the one that a launcher was made for.

    Raises:
        Incompatible: naming those that go with the launcher.
    """
    known = dict.fromkeys(values["nemo"] for values in table("nemo")["launcher"].values())
    fitting = [release for release in known if order(release) <= order(launcher_nemo(launcher))]
    if nemo not in fitting:
        why = (
            f"is newer than launcher {launcher} was made for"
            if nemo in known
            else "is no known release of nvcr.io/nvidia/nemo"
        )
        raise Incompatible(field, nemo, why, fitting, _NEMO, known=nemo in known)
