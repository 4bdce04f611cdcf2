"""Pools of nodes as clouds make them, for the control plane to schedule onto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stacks.versions.nodes import node as profile_of
from tests.cluster.control_plane import Cluster
from tests.fakes.kubernetes.node import node


def offered(profile: str) -> dict[str, str]:
    """Return what a node of a profile offers beside CPUs and memory."""
    row = profile_of(profile)
    pages = {"hugepages-2Mi": row.hugepages} if row.hugepages else {}
    return {**{name: str(count) for name, count in row.limits.items()}, **pages}


POOL = {"acme.example/pool": "ci"}
"""The labels that the cluster's owner gives to the nodes of runners."""


@contextmanager
def pool(cluster: Cluster, profile: str, **resources: str) -> Iterator[None]:
    """Add one node of a profile with its pool's labels and taints, and a plain one.

    ``resources`` replace the profile's.
    """
    row = profile_of(profile)
    taints = [entry["key"] for entry in row.tolerations]
    labels = {**row.selector, **POOL}
    with node(cluster, "plain", {}, {}), node(cluster, profile, labels, resources or offered(profile), taints):
        yield
