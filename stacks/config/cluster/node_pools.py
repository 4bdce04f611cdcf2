"""Pools of nodes, by their labels and taints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.config.cluster.kubernetes_values import ObjectName
from stacks.config.model import Line, Model, NonEmpty, form

_NODE_LABEL = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?")
_PROPERTY = re.compile(
    r"(?:(?:beta\.)?kubernetes\.io|(?:(?:[\w-]+\.)*feature\.)?node\.kubernetes\.io|failure-domain\.beta\.kubernetes\.io"
    r"|topology\.[^/]+|karpenter\.k8s\.aws|nvidia\.com|vpc\.amazonaws\.com)/.*|k8s\.io/cloud-provider-.*"
    r"|karpenter\.sh/(?!nodepool$|provisioner-name$).*|eks\.amazonaws\.com/(?!nodegroup$).*"
    r"|alpha\.eksctl\.io/(?!nodegroup-name$).*|kubernetes\.azure\.com/(?!agentpool$).*|cloud\.google\.com/(?!gke-nodepool$).*"
)
"""Labels that clouds and add-ons give to each node for its zone, host, type or price, all but the name of its pool.
Others' pods run there."""

NodeLabel = Annotated[str, form(_NODE_LABEL, "a node's label, such as acme.example/pool")]


class TolerationConfig(Model):
    """A taint of nodes that pods may run on all the same, as Kubernetes writes it."""

    key: NonEmpty = Field(description="Key of the taint, such as dedicated.")
    operator: Literal["Equal", "Exists"] = Field("Equal", description="Equal compares the value, Exists ignores it.")
    value: Line | None = Field(None, description="Value of the taint, for the operator Equal.")
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] | None = Field(
        None, description="Effect of the taint. Default: any."
    )

    @model_validator(mode="after")
    def _value(self) -> Self:
        if (self.value is None) != (self.operator == "Exists"):
            raise ValueError("give a value with the operator Equal, and none with Exists")
        return self


class PoolConfig(Model):
    """The nodes that pods run on, in addition to the profile."""

    node_selector: dict[NodeLabel, Line] = Field(
        default_factory=dict,
        description="Labels of a pool of nodes for these pods only. Privileged pods need them on nodes of the "
        "profile cpu, because a job can control the whole node.",
    )
    tolerations: tuple[TolerationConfig, ...] = Field(
        (), description="Taints of that pool, which keep other pods away from it."
    )
    runtime_class: ObjectName | None = Field(
        None, description="Runtime class of the pods, such as kata-qemu. Default: the cluster's."
    )

    @property
    def node_labels(self) -> Mapping[str, str]:
        """The labels of the nodes, besides the profile's."""
        return self.node_selector

    @property
    def dedicated(self) -> bool:
        """Whether a label names a pool of nodes, and not a property that the cluster's other nodes have, too."""
        return any(not _PROPERTY.fullmatch(key) for key in self.node_selector)
