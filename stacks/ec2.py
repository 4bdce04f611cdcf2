"""``runners: {kind: ec2}``: machines on EC2 that take GitHub's jobs, and what must be so in AWS before they exist."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from stacks import github
from stacks.errors import SlipwayError, one_line
from stacks.model import Model
from stacks.versions.runner import runner_names

ARCHITECTURES = {"linux/amd64": "x86_64", "linux/arm64": "arm64"}
"""EC2's names of the platforms that a stack may have."""

AMI_PARAMETER = "/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
"""The public parameter with the newest Base Deep Learning AMI: driver, CUDA, Docker, NVIDIA's toolkit, EFA (DLAMI
release notes, "AWS Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)", which both architectures have)."""

UNPACKED = 4
"""Room that an image takes while it is built, in its compressed size: unpacked, and its layers while they are made."""

_SECRET = re.compile(
    r"arn:aws(?:-\w+)*:secretsmanager:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):secret:"
    r"[\w/+=.@-]+-[A-Za-z0-9]{6}"
)
_TOPIC = re.compile(r"arn:aws(?:-\w+)*:sns:(?P<region>[a-z0-9-]+):[0-9]{12}:[\w-]+")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STACK = re.compile(r"[A-Za-z0-9_-]{1,36}")
_IDS = {"ami": re.compile(r"ami-[0-9a-f]{8,17}"), "vpc": re.compile(r"vpc-[0-9a-f]{8,17}")}


_EVERYBODYS = frozenset({"self-hosted", "linux", "windows", "macos", "x64", "arm", "arm64"})
"""Labels that GitHub gives to runners by itself ("Using self-hosted runners in a workflow")."""


def _matching(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def _own(label: str) -> str:
    if label.lower() in _EVERYBODYS:
        raise ValueError(
            "runners have GitHub's own labels by themselves; name one that no other runner has, such as gpu"
        )
    return label


def _no_enterprise(url: str) -> str:
    if github.part(url, "enterprise"):
        raise ValueError(
            "runners on EC2 are an organization's or a repository's; those on Kubernetes may be an enterprise's"
        )
    return url


Arn = Annotated[str, _matching(_SECRET, "the whole ARN of a secret in Secrets Manager, with its last six characters")]
Topic = Annotated[str, _matching(_TOPIC, "the ARN of an SNS topic")]
Region = Annotated[str, _matching(_REGION, "a region such as eu-west-1")]
InstanceType = Annotated[str, _matching(_TYPE, "an instance type such as g5.xlarge")]
RunnerLabel = Annotated[
    str,
    _matching(_LABEL, "a label of at most 64 letters, digits and . _ -, such as gpu"),
    AfterValidator(_own),
]
Ami = Annotated[str, _matching(_IDS["ami"], "the id of an image, such as ami-0123456789abcdef0")]
Vpc = Annotated[str, _matching(_IDS["vpc"], "the id of a VPC, such as vpc-0123456789abcdef0")]
Subnet = Annotated[str, _matching(re.compile(r"subnet-[0-9a-f]{8,17}"), "a subnet, such as subnet-0123456789abcdef0")]


class Ec2GitHub(Model):
    """Whose jobs the runners take. The credentials are in Secrets Manager; neither Pulumi nor a runner sees them."""

    url: Annotated[str, AfterValidator(github.check), AfterValidator(_no_enterprise)] = Field(
        description="Organization or repository, such as https://github.com/acme or https://github.com/acme/images."
    )
    secret: Arn = Field(
        description="ARN of the secret that registers runners: JSON with app, installation and privateKey of a GitHub "
        "App, or with token."
    )
    webhook_secret: Arn = Field(description="ARN of the secret with which GitHub signs its webhooks, as plain text.")
    group: int = Field(1, ge=1, description="Id of the runner group at GitHub; 1 is the default group.")

    @property
    def host(self) -> str:
        """GitHub's host."""
        return github.part(self.url, "host").lower()

    @property
    def api(self) -> str:
        """The address of GitHub's REST API: that of github.com, of a tenant of ghe.com, or of a server of one's own.

        "https://api.SUBDOMAIN.ghe.com" ("Network details for GHE.com"), "http(s)://HOSTNAME/api/v3" ("Getting started
        with the REST API", Enterprise Server).
        """
        ours = self.host == "github.com" or self.host.endswith(".ghe.com")
        return f"https://api.{self.host}" if ours else f"https://{self.host}/api/v3"

    @property
    def owner(self) -> str:
        """The organization, or the owner of the repository."""
        return github.part(self.url, "owner")

    @property
    def repository(self) -> str | None:
        """The repository's name; None where all of the organization's are meant."""
        return github.part(self.url, "name") or None


class Alarm(Model):
    """When somebody is told that a job waits."""

    minutes: int = Field(30, ge=2, le=1440, description="Minutes that a job may be queued without a runner.")
    topic: Topic | None = Field(None, description="ARN of the SNS topic to tell. Default: the alarm is only shown.")


class Ec2Build(Model):
    """A machine that builds images: it runs while there is something to build, and its layers outlive it."""

    instance_type: InstanceType = Field(description="Instance type, such as c7i.4xlarge; GPUs and EFA serve no build.")
    cache: int = Field(500, ge=50, le=16384, description="Size of the volume with its layers, in GiB.")
    idle: int = Field(
        15, ge=2, le=1440, description="Minutes without a connection after which it stops itself, as after a failure."
    )


class Ec2Runners(Model):
    """GitHub Actions runners on EC2: one machine for each job, made for it and ended after it."""

    kind: Literal["ec2"] = Field(description="Runners on EC2.")
    region: Region = Field(description="AWS region, such as eu-west-1.")
    account: str = Field(pattern="^[0-9]{12}$", description="AWS account, 12 digits; quote it.")
    github: Ec2GitHub = Field(description="Whose jobs they take.")
    labels: tuple[RunnerLabel, ...] = Field(
        description="Labels by which jobs choose these runners, beside self-hosted, linux, x64 or arm64."
    )
    instance_types: tuple[InstanceType, ...] = Field(
        description="Instance types, the preferred one first; each must have what is asked for."
    )
    gpus: int | None = Field(
        None, ge=0, description="NVIDIA GPUs that every type must have at least. Default: the fewest of any."
    )
    efa: int | Literal["all"] = Field(
        0, description="EFA interfaces of each machine: a number, or all that its type has."
    )
    image: Ami | None = Field(None, description="Id of the machine image. Default: the newest Deep Learning AMI.")
    spot: bool = Field(default=True, description="Take spot capacity first.")
    spot_patience: int = Field(
        5, ge=1, le=1440, description="Minutes that a job waits for spot before on-demand is asked for, and in turn."
    )
    retries: int = Field(
        1, ge=0, le=5, description="Times that a job is run again which was lost with its machine, as when spot ends."
    )
    min_runners: int = Field(0, ge=0, description="Machines that are there without a job; 0 costs nothing while idle.")
    max_runners: int = Field(4, ge=1, le=500, description="Most machines at once.")
    idle: int = Field(10, ge=1, le=1440, description="Minutes after its start that a machine without a job is kept.")
    boot: int = Field(20, ge=5, le=120, description="Minutes that a machine has to come up at GitHub.")
    max_lifetime: int = Field(7, ge=1, le=365, description="Days after which a machine is replaced, after its job.")
    root: int = Field(
        200,
        ge=75,
        le=16384,
        description="Size of the root volume in GiB; Docker's layers are there too unless the type has NVMe disks.",
    )
    vpc: Vpc | None = Field(None, description="VPC. Default: that of the subnets, else the account's default VPC.")
    subnets: tuple[Subnet, ...] = Field(
        (), description="Subnets. Default: all of the VPC. With EFA exactly one, since a cluster is in one zone."
    )
    endpoints: bool = Field(
        default=False, description="Create VPC endpoints for what runners ask of AWS, for subnets that cannot reach it."
    )
    alarm: Alarm = Field(default_factory=lambda: Alarm.model_validate({}), description="When a job waits too long.")
    build: Ec2Build | None = Field(None, description="A machine that builds images: see buildOn.")
    log_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = Field(30, description="Days that logs are kept.")
    runner: str = Field("2.334.0", description="Version of GitHub's runner: see stacks/versions/runner.toml.")

    @field_validator("labels", "instance_types")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len({one.lower() for one in value}) < len(value):
            raise ValueError("expected at least one, and none twice")
        return value

    @field_validator("efa", mode="before")
    @classmethod
    def _interfaces(cls, value: object) -> object:
        """Refuse here what is neither: pydantic would say so for each of both."""
        if value != "all" and not str(value).isdecimal():
            raise ValueError("expected a number of interfaces, or all")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_runners > self.max_runners:
            raise ValueError(f"minRunners {self.min_runners} is more than maxRunners {self.max_runners}")
        if self.runner not in runner_names():
            raise ValueError(
                f"runner '{one_line(self.runner)}' is not in stacks/versions/runner.toml; "
                f"it has {', '.join(runner_names())}"
            )
        if self.efa and len(self.subnets) != 1:
            raise ValueError("efa needs exactly one subnet: machines with EFA are in one placement group, in one zone")
        arns = {
            "github.secret": _SECRET.fullmatch(self.github.secret),
            "github.webhookSecret": _SECRET.fullmatch(self.github.webhook_secret),
            # Whose it is does not matter: a topic says itself who may write to it.
            "alarm.topic": _TOPIC.fullmatch(self.alarm.topic or ""),
        }
        for key, match in arns.items():
            for what, given in match.groupdict().items() if match else ():
                if given != getattr(self, what):
                    raise ValueError(f"{key} is in {what} {given}; the runners are in {getattr(self, what)}")
        if self.github.secret == self.github.webhook_secret:
            raise ValueError(
                "github.webhookSecret is github.secret; GitHub signs with another one: make it, and give its ARN"
            )
        return self

    def runner_labels(self, platform: str) -> tuple[str, ...]:
        """Return all labels of a runner, GitHub's own first."""
        return ("self-hosted", "linux", {"linux/amd64": "x64", "linux/arm64": "arm64"}[platform], *self.labels)


@dataclass(frozen=True)
class Machine:
    """What EC2 says of an instance type (DescribeInstanceTypes).

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

    def interfaces(self, asked: int | Literal["all"]) -> tuple[tuple[int, int, str], ...]:
        """Return the network interfaces to make: card, device index on it, and type.

        "Network interface attachment uses device index 0 for the primary network card, and 1 for others"; all but the
        first are ``efa-only``, which takes no address (EC2 user guide, "Maximize network bandwidth on Amazon EC2
        instances with multiple network cards"). A type with more cards than EFA interfaces has none on the first.
        """
        count = self.efa if asked == "all" else asked
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
class Site:
    """What AWS says of all that a configuration names.

    ``image_gb`` is the size of the image's own root volume, ``root_device`` the name of it; ``prices`` are of spot
    capacity and ``on_demand_prices`` of the other, in US dollars per hour and by type, as far as AWS tells.
    ``builder`` is the machine that builds images.
    """

    machines: Sequence[Machine]
    networks: Sequence[Network]
    vpc: str
    image: str
    image_architecture: str
    image_gb: int
    root_device: str
    prices: Mapping[str, float]
    on_demand_prices: Mapping[str, float]
    builder: Machine | None = None

    def gpus(self, asked: int | None) -> int:
        """Return how many GPUs each machine must have: as many as are asked for, else the fewest of any type."""
        return min(machine.gpus for machine in self.machines) if asked is None else asked

    @property
    def builder_network(self) -> Network | None:
        """The first subnet that the builder can be in; None where it can be in none."""
        return self.network(self.builder) if self.builder else None

    def network(self, machine: Machine) -> Network | None:
        """Return the first subnet that a machine of a type can be in; None where it can be in none."""
        return next((network for network in self.networks if network.zone in machine.zones), None)


def partition(region: str) -> str:
    """Return the partition of AWS that a region is in, as ARNs name it."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if "-gov-" in region else "aws"


def check_stack(stack: str) -> None:
    """Refuse a stack after which the runners cannot be named.

    A function's name has no dot ("CreateFunction", Lambda), and a runner's no more than 64 characters (GitHub's runner,
    pull request 1710): ``slipway-<stack>-i-0123456789abcdef0``.

    Raises:
        SlipwayError: what their names may be.
    """
    if not _STACK.fullmatch(stack):
        raise SlipwayError(
            f"stack {stack}: slipway:runners: what they are made of is called slipway-<stack>-..., which takes "
            "at most 36 letters, digits, - and _; rename the stack's file"
        )


def check(config: Ec2Runners, site: Site, platform: str, budgets: Mapping[str, int]) -> None:
    """Refuse what could not run, before any of it exists.

    Args:
        config: what is asked for.
        site: what there is.
        platform: of the stack's images.
        budgets: most compressed bytes of images that are built here, by name.

    Raises:
        SlipwayError: one line for each mistake.
    """
    found = [
        *_machine_mistakes(config, site, platform),
        *_place_mistakes(config, site),
        *_builder_mistakes(config, site, platform, budgets),
    ]
    on_root = not all(machine.disks for machine in site.machines)  # else layers are on the disks
    images = UNPACKED * sum(budgets.values()) // 1024**3 if on_root else 0
    need = site.image_gb + images
    if config.root < need:
        found.append(
            f"root: {config.root} GiB is too small: the machine image takes {site.image_gb} GiB"
            + (f", and {', '.join(budgets)} within budgets {images}" if images else "")
            + f"; give at least {need}"
        )
    if found:
        raise SlipwayError("\n".join(f"slipway:runners.{line}" for line in found))


def _machine_mistakes(config: Ec2Runners, site: Site, platform: str) -> list[str]:
    architecture = ARCHITECTURES[platform]
    wanted = f"slipway:platform {platform} is {architecture}"
    found = []
    if site.image_architecture != architecture:
        found.append(f"image: {site.image} is for {site.image_architecture}; {wanted}")
    for machine in site.machines:
        where = f"instanceTypes: {machine.name}"
        if architecture not in machine.architectures:
            found.append(f"{where} is {' and '.join(machine.architectures)}; {wanted}")
        if config.gpus is not None and machine.gpus < config.gpus:
            found.append(f"{where} has {machine.gpus} NVIDIA GPUs; gpus asks for {config.gpus}")
        if config.efa and machine.efa < (1 if config.efa == "all" else config.efa):
            found.append(f"{where} has {machine.efa} EFA interfaces; efa asks for {config.efa}")
        elif config.efa and not machine.cluster:
            found.append(f"{where} cannot be in a cluster placement group, which EFA is for")
        if config.spot and not machine.spot:
            found.append(f"{where} has no spot capacity; say spot: false, or leave it out")
        found += _zone_mistakes(where, machine, config, site)
    return found


def _zone_mistakes(where: str, machine: Machine, config: Ec2Runners, site: Site) -> list[str]:
    if not site.networks or site.network(machine):
        return []
    zones = ", ".join(sorted({network.zone for network in site.networks}))
    other = f"it is in {', '.join(machine.zones)}" if machine.zones else f"nor elsewhere in {config.region}"
    return [f"{where} is not to be had in {zones}, where the subnets are; {other}"]


def _place_mistakes(config: Ec2Runners, site: Site) -> list[str]:
    found = []
    if not site.networks:
        found.append(f"subnets: {site.vpc} has none; give a VPC that has, or make one there")
    for network in site.networks:
        if network.vpc != site.vpc:
            found.append(f"subnets: {network.subnet} is in {network.vpc}; the others, or vpc, are in {site.vpc}")
        # "You can't assign a public IP if you specify multiple network interfaces" (EC2 user guide, public IPv4).
        several = any(len(machine.interfaces(config.efa)) > 1 for machine in site.machines)
        if network.public and several:
            found.append(
                f"subnets: {network.subnet} gives public addresses, which a machine with several EFA interfaces cannot "
                "have: give a private subnet, whose way out is a NAT gateway"
            )
    return found


def _builder_mistakes(config: Ec2Runners, site: Site, platform: str, budgets: Mapping[str, int]) -> list[str]:
    build, machine = config.build, site.builder
    if build is None or machine is None:
        return []
    found = []
    architecture = ARCHITECTURES[platform]
    where = f"build.instanceType: {machine.name}"
    if architecture not in machine.architectures:
        found.append(f"{where} is {' and '.join(machine.architectures)}; slipway:platform {platform} is {architecture}")
    found += _zone_mistakes(where, machine, config, site)
    need = UNPACKED * sum(budgets.values()) // 1024**3
    if build.cache < need:
        found.append(
            f"build.cache: {build.cache} GiB is too small for {', '.join(budgets)} within budgets; give at least {need}"
        )
    return found
