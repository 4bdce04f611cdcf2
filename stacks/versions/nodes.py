"""Nodes of clusters, by the names of their profiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from stacks.versions.incompatible import Incompatible, row
from stacks.versions.tables import table

EFA = "vpc.amazonaws.com/efa"
INFINIBAND = "rdma/ib"
HUGEPAGES = "hugepages-2Mi"
"""Kubernetes' name for pages of 2 MiB."""

_SOURCE = "stacks/versions/nodes.toml"


@dataclass(frozen=True, slots=True)
class Node:
    """One kind of node.

    Attributes:
        name: of the profile, such as ``eks-p5``.
        selector: labels that only such nodes have.
        tolerations: of the taints that such pools are given, as Kubernetes writes them.
        pool: whether labels and taints set such nodes apart from the cluster's other nodes.
        arch: of its CPUs, such as ``amd64``.
        limits: the most of each extended resource that one pod can have.
        driver: NVIDIA's in the cloud's own machine image for them; None without GPUs.
        hugepages: size of the 2 MiB pages that go with all its EFA, such as ``5120Mi``; None where there is none.
        cores: CPUs; None where nodes of this name differ.
        memory: GiB; None likewise.
        gpu: model of its GPUs, such as ``H100``; None without GPUs.
        page: bytes of a page of NVIDIA's own kernel for the CPU; None where there is none.
    """

    name: str
    selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, str], ...]
    pool: bool
    arch: str
    limits: Mapping[str, int]
    driver: str | None = None
    hugepages: str | None = None
    cores: int | None = None
    memory: int | None = None
    gpu: str | None = None
    page: int | None = None

    def most(self, resource: str) -> int:
        """Return how many of a resource the node has."""
        return self.limits.get(resource, 0)

    def pages(self, interfaces: int) -> int:
        """Return the MiB of 2 MiB pages that go with some EFA interfaces: their share, in whole pages."""
        if not self.hugepages:
            return 0
        share = int(self.hugepages.removesuffix("Mi")) * interfaces // self.most(EFA)
        return share - share % 2


def node_names() -> tuple[str, ...]:
    """Return every profile in the table."""
    return tuple(table("nodes"))


@functools.cache
def node(name: str, *, field: str = "runners.profile") -> Node:
    """Return a profile's row. Raises Incompatible: there is no such profile."""
    values = row(table("nodes"), name, field, "is not a known profile", _SOURCE)
    return Node(name, **{**values, "tolerations": tuple(values["tolerations"])})


def check_count(profile: str, resource: str, count: int, *, field: str) -> None:
    """Refuse more of a resource than a profile's node has: such a pod would wait forever.

    Raises Incompatible: naming the counts that a pod can have.
    """
    most = node(profile).most(resource)
    if not 0 <= count <= most:
        allowed = ("0",) if most == 0 else (f"0 to {most}",)
        raise Incompatible(field, str(count), f"is more {resource} than a node of {profile} has", allowed, _SOURCE)
