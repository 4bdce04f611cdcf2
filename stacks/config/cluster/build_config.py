"""``runners.build``: Docker daemons that builds share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from containers.registry.reference import check_host
from stacks.config.cluster.kubernetes_values import Quantity
from stacks.config.cluster.node_pools import PoolConfig
from stacks.config.model import Line
from stacks.config.values import Platform, listed


def _with_ports(value: tuple[str, ...]) -> tuple[str, ...]:
    for address in value:
        if ":" not in check_host(address):
            raise ValueError("expected host:port, such as builds.acme.internal:2376")
    return value


Addresses = Annotated[
    tuple[str, ...],
    BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...]),
    AfterValidator(_with_ports),
]
"""An address for each replica of a service; one may be given without a list."""


class DaemonPoolConfig(PoolConfig):
    """Docker daemons for one platform, which share its images."""

    replicas: int = Field(
        1,
        ge=1,
        le=64,
        description="Daemons that share the stack's images with buildOn: runners, each with a pod, a volume and an "
        "address of its own.",
    )
    address: Addresses | None = Field(
        None,
        description="host:port at which the machine that runs Pulumi reaches it; a list with one for each of its "
        "replicas. Default: its name in the cluster.",
    )

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if self.address is not None and not len(self.address) == len(set(self.address)) == self.replicas:
            raise ValueError(
                f"address: '{', '.join(self.address)}': expected {self.replicas}"
                f"{' different ones' * (self.replicas > 1)}, one for each of replicas; or leave address out if Pulumi "
                "runs in the cluster"
            )
        return self


class BuildServiceConfig(DaemonPoolConfig):
    """A Docker daemon that builds share. Its layers outlive its pod; it and its clients have TLS certificates."""

    jobs: bool = Field(
        default=False,
        description="Give jobs its key, so that they can build on it. The key controls all that is built there, "
        "so buildOn: runners refuses it.",
    )
    platforms: dict[Platform, DaemonPoolConfig] = Field(
        default_factory=dict,
        description="Daemons for another platform than the profile's, with the nodes of each: {linux/arm64: "
        "{nodeSelector: {acme.example/pool: builds-arm}}}.",
    )
    cache: Quantity = Field("500Gi", description="Size of the volume for its layers.")
    storage_class: Line | None = Field(None, description="Storage class of that volume. Default: the cluster's.")
    cpu: str = Field("4", pattern="^[1-9][0-9]*m?$", description="CPUs that it requests.")
    memory: Quantity = Field("16Gi", description="Memory that it requests; also its limit.")
    rootless: bool = Field(
        default=False,
        description="Run a rootless BuildKit daemon instead. It has no Docker API, so buildOn: runners cannot use it.",
    )
    service: Literal["ClusterIP", "LoadBalancer", "NodePort"] = Field(
        "ClusterIP", description="Type of its Kubernetes service."
    )

    @model_validator(mode="after")
    def _shared(self) -> Self:
        pools: list[DaemonPoolConfig] = [self, *self.platforms.values()]
        addresses = [address for pool in pools for address in pool.address or ()]
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"address '{address}' is given twice: each daemon has its own")
        key = f"replicas {self.replicas}" if self.replicas > 1 else "platforms" if self.platforms else ""
        if key and (self.jobs or self.rootless):
            raise ValueError(
                f"{key} share the stack's images with buildOn: runners, and a job knows one address: leave out "
                f"{key.partition(' ')[0]}, or {'jobs' if self.jobs else 'rootless'}"
            )
        return self


@dataclass(frozen=True)
class Replica:
    """A daemon of the build service.

    ``number`` counts those of its pool from 0. ``ending`` is that of its objects' names; the first one has none, and is
    named as the service.
    """

    platform: str
    pool: DaemonPoolConfig
    number: int
    ending: str

    def named(self, name: str) -> str:
        """Return the name of one of its objects."""
        return f"{name}-{self.ending}" if self.ending else name

    @property
    def address(self) -> str | None:
        """``host:port`` of the daemon in the configuration; None if it names none."""
        return self.pool.address[self.number] if self.pool.address else None
