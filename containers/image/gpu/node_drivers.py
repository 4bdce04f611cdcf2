"""The drivers of a cluster's nodes, by the labels that NVIDIA's GPU feature discovery gives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from containers.errors import MALFORMED, SlipwayError, abridged, one_line
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import Item, Unanswered
from containers.image.gpu.node_labels import GPU, labelled_driver
from containers.image.gpu.release_order import order

_LISTED: Final = 3
"""Nodes in one line; the others are counted."""


@dataclass(frozen=True)
class NodeDrivers:
    """The names of nodes by driver, the oldest driver first, and of those with GPUs whose labels name none."""

    by_driver: Mapping[str, Sequence[str]]
    unlabelled: Sequence[str] = ()


def of(nodes: Iterable[Item]) -> NodeDrivers:
    """Return the drivers of nodes as Kubernetes describes them.

    Raises:
        Unanswered: a node's number of GPUs is no quantity.
    """
    drivers: defaultdict[str, list[str]] = defaultdict(list)
    unlabelled = []
    for node in nodes:
        metadata = node["metadata"]
        name = one_line(metadata.get("name", ""))
        labelled = labelled_driver(metadata.get("labels") or {})
        if labelled and order(labelled[0]):
            drivers[labelled[0]].append(name)
        elif kubectl.offered(node, GPU):
            unlabelled.append(name)
    return NodeDrivers({driver: drivers[driver] for driver in sorted(drivers, key=order)}, tuple(unlabelled))


def read(kubeconfig: str | None = None, context: str | None = None) -> NodeDrivers:
    """Return the drivers of a cluster's nodes; by default of the cluster that ``kubectl`` uses.

    Raises:
        SlipwayError: the cluster does not answer, or no node's labels name a driver.
    """
    try:
        nodes = kubectl.items("nodes", kubeconfig=kubeconfig, context=context)
        drivers = of(nodes)
    except FileNotFoundError:
        raise SlipwayError("kubectl is not on PATH: it asks the cluster for its nodes") from None
    except Unanswered as error:
        raise SlipwayError(f"the cluster does not answer kubectl: {error}") from None
    except MALFORMED as error:
        raise SlipwayError(kubectl.of_another_shape(error)) from None
    if not drivers.by_driver:
        raise SlipwayError(
            f"none of {len(nodes)} nodes has a label with its driver, such as nvidia.com/cuda.driver-version.full: "
            "NVIDIA's GPU feature discovery gives it"
        )
    return drivers


def listed(names: Sequence[str]) -> str:
    """Return nodes as words of a line."""
    return f"node{'' if len(names) == 1 else 's'} {abridged(names, _LISTED)}"
