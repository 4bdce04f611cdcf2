"""``runners: {kind: ec2}``: what AWS must have before the machines are created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from containers.errors import SlipwayError, one_line
from stacks.checks import reservations
from stacks.checks.reservations import Reservation
from stacks.config.ec2 import ARCHITECTURES, Ec2RunnersConfig
from stacks.graph import Graph

UNPACKED = 4
"""Disk space that a build takes, as a multiple of the image's compressed size: unpacked image and layers in work."""

_MOST = 36
"""Most characters of a stack's name, or of it with a dot and the name of a set."""

_STACK = re.compile(rf"[A-Za-z0-9_-]{{1,{_MOST}}}")


PLACEHOLDERS: Final = {
    "region": "fill-in-0",
    "account": "404040404040",
    "owner": "-fill-in-",
    "secret": "slipway/github-FillIn",
    "labels": "fill-in",
    "instanceTypes": "fill-in.metal",
    "vpc": "vpc-00000000",
    "subnets": "subnet-00000000",
}
"""What `slipway new --from` writes for a value that it does not find, by its key. AWS and GitHub have none of these.
000000000000 is an account of LocalStack's (docs.localstack.cloud/aws/capabilities/config/credentials)."""

_UNFILLED: Final = re.compile(rf"(?:https://.*/|arn:.*:secret:)?(?:{'|'.join(map(re.escape, PLACEHOLDERS.values()))})")


@dataclass(frozen=True)
class InstanceType:
    """An instance type, as EC2 describes it (DescribeInstanceTypes).

    ``gpus`` are NVIDIA's, ``efa`` is the most EFA interfaces, ``cards`` are network cards, ``disks`` local NVMe disks,
    ``cluster`` says whether it may be in a cluster placement group, ``spot`` whether there is spot capacity of it, and
    ``zones`` are those that have it.
    """

    name: str
    architectures: tuple[str, ...]
    gpus: int
    efa: int
    cards: int
    disks: int
    cluster: bool
    spot: bool
    zones: tuple[str, ...]

    def interfaces(self, requested: int | Literal["all"]) -> tuple[tuple[int, int, str], ...]:
        """Return the network interfaces to make: card, device index on it, and type.

        "Network interface attachment uses device index 0 for the primary network card, and 1 for others"; all but the
        first are ``efa-only``, which takes no address (EC2 user guide, "Maximize network bandwidth on Amazon EC2
        instances with multiple network cards"). A type with more cards than EFA interfaces has none on the first.
        """
        count = self.efa if requested == "all" else requested
        if not count:
            return ((0, 0, "interface"),)
        spare = self.cards > self.efa
        first = ((0, 0, "interface" if spare else "efa"),)
        return first + tuple((card, 1, "efa-only") for card in range(1, count + spare))


@dataclass(frozen=True)
class Network:
    """A subnet, its VPC, zone and addresses, and whether machines in it get a public address."""

    subnet: str
    vpc: str
    zone: str
    cidr: str
    public: bool


@dataclass(frozen=True)
class Builder:
    """The machine that builds a platform's images, by its key below ``slipway:runners``, and its machine image."""

    key: str
    machine: InstanceType
    image: str
    image_architecture: str


@dataclass(frozen=True)
class Site:
    """The AWS resources that a configuration names, as AWS describes them.

    ``image_gb`` is the size of the image's own root volume, ``root_device`` the name of it; ``prices`` are of spot
    capacity and ``on_demand_prices`` of the other, in US dollars per hour and by type, as far as AWS tells.
    ``builders`` has the machines that build images, by platform. ``reservations`` are those that the runners use.
    """

    machines: Sequence[InstanceType]
    networks: Sequence[Network]
    vpc: str
    image: str
    image_architecture: str
    image_gb: int
    root_device: str
    prices: Mapping[str, float]
    on_demand_prices: Mapping[str, float]
    builders: Mapping[str, Builder] = field(default_factory=dict)
    reservations: Sequence[Reservation] = ()

    def gpus(self, requested: int | None) -> int:
        """Return the GPUs of each machine: the number requested, else the fewest of any type."""
        return min(machine.gpus for machine in self.machines) if requested is None else requested

    def network(self, machine: InstanceType) -> Network | None:
        """Return the first subnet that a machine of a type can be in; None where it can be in none."""
        return next((network for network in self.networks if network.zone in machine.zones), None)


def partition(region: str) -> str:
    """Return the partition of AWS that a region is in, as ARNs name it."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if "-gov-" in region else "aws"


def unfilled(graph: Graph) -> Iterator[str]:
    """Yield a message for each key of the runners that still has a placeholder."""
    if isinstance(graph.config.runners, Ec2RunnersConfig):
        values = graph.config.runners.model_dump(mode="json", by_alias=True, exclude_unset=True)
        yield from _placeholders(values, "slipway:runners")


def _placeholders(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _placeholders(inner, f"{key}.{name}")
            if name == PLACEHOLDERS["labels"]:
                yield f"{key}: '{name}' stands for a set's name: write your own"
    elif isinstance(value, list):
        for inner in value:
            yield from _placeholders(inner, key)
    elif isinstance(value, str) and _UNFILLED.fullmatch(value):
        yield f"{key}: '{one_line(value)}' stands for a value that `slipway new --from` did not find: write your own"


def unfit_name(graph: Graph) -> Iterator[str]:
    """Yield a message where the runners cannot be named after the stack.

    A function's name has no dot ("CreateFunction", Lambda), and a runner's no more than 64 characters (GitHub's runner,
    pull request 1710): ``slipway-<stack>-i-0123456789abcdef0``.
    """
    runners, stack = graph.config.runners, graph.where.removeprefix("stack ")
    if not isinstance(runners, Ec2RunnersConfig):
        return
    if not _STACK.fullmatch(stack):
        yield (
            "slipway:runners: their resources are named slipway-<stack>-..., so that the stack's name has at most "
            "36 letters, digits, - and _; rename the stack's file"
        )
        return
    for name in runners.sets:
        if len(stack) + len(name) > _MOST - 1:
            yield (
                f"slipway:runners.sets.{name}: a runner of it is named slipway-{stack}.{name}-i-..., which has at most "
                f"64 characters: take {len(stack) + len(name) - _MOST + 1} off the set's name, or off the stack's"
            )


def unused_builders(graph: Graph) -> Iterator[str]:
    """Yield a message for each machine of a further platform where the stack's images are built elsewhere."""
    runners = graph.config.runners
    if isinstance(runners, Ec2RunnersConfig) and runners.build and graph.config.build_on != "runners":
        for platform in runners.build.platforms:
            yield (
                f"slipway:runners.build.platforms.{platform}: nothing is built there: set slipway:buildOn: runners, or "
                "leave it out"
            )


def check(config: Ec2RunnersConfig, site: Site, platform: str, budgets: Mapping[str, int]) -> None:
    """Refuse what could not run at a ``site`` of AWS, before any of it exists.

    ``platform`` is of the runners, the first of the stack's images. ``budgets`` are the most compressed bytes of images
    that are built here, by name.

    Raises SlipwayError: one line for each mistake.
    """
    mistakes = [
        *_machine_mistakes(config, site, platform),
        *_place_mistakes(config, site),
        *_reservation_mistakes(config, site),
        *(line for builds in site.builders for line in _builder_mistakes(config, site, builds, platform, budgets)),
    ]
    on_root = not all(machine.disks for machine in site.machines)  # else layers are on the disks
    images = UNPACKED * sum(budgets.values()) // 1024**3 if on_root else 0
    need = site.image_gb + images
    if config.root < need:
        mistakes.append(
            f"root: {config.root} GiB is too small: the machine image takes {site.image_gb} GiB"
            + (f", and {', '.join(budgets)} within budgets {images}" if images else "")
            + f"; give at least {need}"
        )
    if mistakes:
        raise SlipwayError("\n".join(f"slipway:runners.{config.key(line)}" for line in mistakes))


def _machine_mistakes(config: Ec2RunnersConfig, site: Site, platform: str) -> list[str]:
    architecture = ARCHITECTURES[platform]
    expected = f"slipway:platform {platform} is {architecture}"
    mistakes = []
    if site.image_architecture != architecture:
        mistakes.append(f"ami: {site.image} is for {site.image_architecture}; {expected}")
    for machine in site.machines:
        where = f"instanceTypes: {machine.name}"
        if architecture not in machine.architectures:
            mistakes.append(f"{where} is {' and '.join(machine.architectures)}; {expected}")
        if config.min_gpus is not None and machine.gpus < config.min_gpus:
            mistakes.append(f"{where} has {machine.gpus} NVIDIA GPUs; minGpus asks for {config.min_gpus}")
        if config.efa and machine.efa < (1 if config.efa == "all" else config.efa):
            mistakes.append(f"{where} has {machine.efa} EFA interfaces; efa asks for {config.efa}")
        elif config.efa and not machine.cluster:
            mistakes.append(f"{where} cannot be in a cluster placement group, which EFA is for")
        if "spot" in config.kinds and not machine.spot:
            mistakes.append(f"{where} has no spot capacity; say spot: false, or leave it out")
        mistakes += _zone_mistakes(where, machine, config, site)
    return mistakes


def _zone_mistakes(where: str, machine: InstanceType, config: Ec2RunnersConfig, site: Site) -> list[str]:
    if not site.networks or site.network(machine):
        return []
    zones = ", ".join(sorted({network.zone for network in site.networks}))
    other = f"it is offered in {', '.join(machine.zones)}" if machine.zones else f"nor elsewhere in {config.region}"
    return [f"{where} is not offered in {zones}, where the subnets are; {other}"]


def _place_mistakes(config: Ec2RunnersConfig, site: Site) -> list[str]:
    mistakes = []
    if not site.networks:
        mistakes.append(f"subnets: {site.vpc} has none; give a VPC that has, or make one there")
    for network in site.networks:
        if network.vpc != site.vpc:
            mistakes.append(f"subnets: {network.subnet} is in {network.vpc}; the others, or vpc, are in {site.vpc}")
        # "You can't assign a public IP if you specify multiple network interfaces" (EC2 user guide, public IPv4).
        several = any(len(machine.interfaces(config.efa)) > 1 for machine in site.machines)
        if network.public and several:
            mistakes.append(
                f"subnets: {network.subnet} gives public addresses, which a machine with several EFA interfaces cannot "
                "have: give a private subnet, whose way out is a NAT gateway"
            )
    return mistakes


def _reservation_mistakes(config: Ec2RunnersConfig, site: Site) -> Iterator[str]:
    if config.reservation is None:
        return iter(())
    machines = reservations.ReservedMachines(
        account=config.account,
        owner=config.reservation.owner or config.account,
        types={machine.name for machine in site.machines},
        zones={network.zone for network in site.networks},
        grouped=bool(config.efa),
        most=config.max_runners,
        limit=f"maxRunners is {config.max_runners}",
        drain=config.reservation.drain,
    )
    mistakes = reservations.mistakes(config.reservation, site.reservations, machines, datetime.now(UTC))
    return (f"reservation: {line}" for line in mistakes)


def _builder_mistakes(
    config: Ec2RunnersConfig, site: Site, platform: str, first: str, budgets: Mapping[str, int]
) -> list[str]:
    """Return what is wrong with the machine of a platform; ``first`` is the platform of the runners."""
    build, builder = config.builders(first)[platform], site.builders[platform]
    architecture = ARCHITECTURES[platform]
    expected = f"{f'slipway:platform {platform}' if platform == first else platform} is {architecture}"
    where = f"{builder.key}.instanceType: {builder.machine.name}"
    mistakes = []
    if architecture not in builder.machine.architectures:
        mistakes.append(f"{where} is {' and '.join(builder.machine.architectures)}; {expected}")
    # The first one has the image of the runners, which is checked with these.
    if platform != first and builder.image_architecture != architecture:
        mistakes.append(f"{builder.key}.ami: {builder.image} is for {builder.image_architecture}; {expected}")
    mistakes += _zone_mistakes(where, builder.machine, config, site)
    need = UNPACKED * sum(budgets.values()) // 1024**3
    if build.cache < need:
        mistakes.append(
            f"{builder.key}.cache: {build.cache} GiB is too small for {', '.join(budgets)} within budgets; give at "
            f"least {need}"
        )
    return mistakes
