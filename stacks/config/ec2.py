"""``runners: {kind: ec2}``: GitHub Actions runners on EC2."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from containers.errors import one_line
from stacks.config import builders, github_url
from stacks.config.model import SENSITIVE, Line, Model, NonEmpty, SeveralSetsConfig, form, refuse_unread
from stacks.config.values import Driver, Label, Platform
from stacks.versions.checksums import old_runner, runner_names

ARCHITECTURES = {"linux/amd64": "x86_64", "linux/arm64": "arm64"}
"""EC2's names of the platforms that a stack may have."""

AMI_PARAMETER = "/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
"""The public parameter with the newest Base Deep Learning AMI: driver, CUDA, Docker, NVIDIA's toolkit, EFA (DLAMI
release notes, "AWS Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)", which both architectures have)."""

_SECRET = re.compile(
    r"arn:aws(?:-\w+)*:secretsmanager:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):secret:"
    r"[\w/+=.@-]+-[A-Za-z0-9]{6}"
)
_TOPIC = re.compile(r"arn:aws(?:-\w+)*:sns:(?P<region>[a-z0-9-]+):[0-9]{12}:[\w-]+")
_POLICY = re.compile(r"arn:aws(?:-\w+)*:iam::(?:(?P<account>[0-9]{12})|aws):policy/[\w/+=,.@-]+")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.(?:nano|micro|small|medium|large|[0-9]*xlarge|metal(?:-[0-9]+xl)?)")
"""Sizes as in AWS's list of instance types (DescribeInstanceTypes)."""
_IDS = {"ami": re.compile(r"ami-[0-9a-f]{8,17}"), "vpc": re.compile(r"vpc-[0-9a-f]{8,17}")}


DEFAULT_LABELS = frozenset({"self-hosted", "linux", "windows", "macos", "x64", "arm", "arm64"})
"""Labels that GitHub gives to every runner ("Using self-hosted runners in a workflow")."""


def _custom(label: str) -> str:
    if label.lower() in DEFAULT_LABELS:
        raise ValueError("this is GitHub's own label of all its runners; choose one of your own, such as gpu")
    return label


def _no_enterprise(url: str) -> str:
    if github_url.part(url, "enterprise"):
        raise ValueError(
            "runners on EC2 serve an organization or a repository; use runners on Kubernetes for an enterprise"
        )
    return url


Arn = Annotated[str, form(_SECRET, "the full ARN of a secret in Secrets Manager, including its six-character ending")]
Topic = Annotated[str, form(_TOPIC, "the ARN of an SNS topic")]
Region = Annotated[str, form(_REGION, "a region such as eu-west-1")]
InstanceType = Annotated[str, form(_TYPE, "an instance type such as g5.xlarge")]
Policy = Annotated[str, form(_POLICY, "the ARN of an IAM policy")]
Ami = Annotated[str, form(_IDS["ami"], "the id of an image, such as ami-0123456789abcdef0")]
Vpc = Annotated[str, form(_IDS["vpc"], "the id of a VPC, such as vpc-0123456789abcdef0")]
RepositoryName = Annotated[
    str, form(r"[a-z0-9]+(?:[._/-][a-z0-9]+)*", "the name of one repository, such as service, without a wildcard")
]
Subnet = Annotated[str, form(r"subnet-[0-9a-f]{8,17}", "a subnet, such as subnet-0123456789abcdef0")]
ReservationId = Annotated[str, form(r"cr-[0-9a-f]{8,17}", "the id of a reservation, such as cr-0123456789abcdef0")]


def _gib(value: Any) -> Any:
    """Return a size such as 500Gi, as for runners in a cluster, as the number of GiB that EC2 takes."""
    match = re.fullmatch(r"([1-9][0-9]*)(Gi|Ti)", value) if isinstance(value, str) else None
    return int(match[1]) * (1024 if match[2] == "Ti" else 1) if match else value


class NamedReservationsConfig(Model):
    """Machines that are reserved at EC2: capacity reservations, or Capacity Blocks, by their ids or by tags."""

    ids: tuple[ReservationId, ...] = Field((), description="Ids of the reservations, the preferred one first.")
    tags: dict[NonEmpty, Line] = Field(
        default_factory=dict, description="Tags that the reservations have, in place of ids: the active ones count."
    )
    owner: str | None = Field(
        None, pattern="^[0-9]{12}$", description="Account that owns and shares them; quote it. Default: the own one."
    )
    fallback: bool = Field(
        default=False,
        description="Take other machines where the reservations have none left, as without reservations. Without it, "
        "jobs wait.",
    )

    @model_validator(mode="after")
    def _named(self) -> Self:
        if bool(self.ids) == bool(self.tags):
            raise ValueError("expected either ids or tags of reservations")
        if len(set(self.ids)) < len(self.ids):
            raise ValueError("expected each of ids only once")
        return self


class ReservationConfig(NamedReservationsConfig):
    """Reserved machines of runners on EC2."""

    drain: int = Field(
        60,
        ge=5,
        le=1440,
        description="Minutes that jobs get to finish before EC2 takes the machines of a Capacity Block, 30 minutes "
        "before its end. In these minutes, no job starts there.",
    )


class NodeReservationConfig(NamedReservationsConfig):
    """Reserved machines that are nodes of an EKS cluster. Who owns the cluster makes them nodes: it is named here."""

    region: Region = Field(description="AWS region of the reservations, such as eu-west-1.")
    account: str = Field(pattern="^[0-9]{12}$", description="AWS account of the cluster, 12 digits; quote it.")
    node_class: NonEmpty | None = Field(
        None, description="Karpenter's EC2NodeClass whose capacityReservationSelectorTerms select the reservations."
    )
    node_group: NonEmpty | None = Field(None, description="EKS's managed node group that is in the reservation.")

    @model_validator(mode="after")
    def _made_nodes(self) -> Self:
        if (self.node_class is None) == (self.node_group is None):
            raise ValueError("expected either nodeClass or nodeGroup, by which its machines become nodes")
        return self

    @property
    def labels(self) -> dict[str, str]:
        """The labels that nodes in the reservations alone have; none where others do, too."""
        if self.fallback:
            return {}
        if self.node_group:
            return {"eks.amazonaws.com/nodegroup": self.node_group}
        one = {"karpenter.k8s.aws/capacity-reservation-id": self.ids[0]} if len(self.ids) == 1 else {}
        return {"karpenter.sh/capacity-type": "reserved", **one}


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        raise ValueError("expected a time zone that this machine knows, such as Europe/Berlin or UTC") from None
    return name


def minutes(clock: str) -> int:
    """Return the minutes from midnight to a time of day such as 08:30."""
    return int(clock[:2]) * 60 + int(clock[3:])


Clock = Annotated[str, form(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00", 'a time of day in quotes, such as "08:30"')]


class ScheduleConfig(Model):
    """Another minimum at some times of the week, by the clocks of a place."""

    min_runners: int = Field(ge=0, description="Machines that wait for jobs at that time, in place of minRunners.")
    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(
        ("mon", "tue", "wed", "thu", "fri"), description="Days on which it starts."
    )
    start: Clock = Field("00:00", description="When it starts; quote it.")
    end: Clock = Field("24:00", description="When it ends; quote it. Before `start`, it is on the next day.")
    time_zone: Annotated[str, AfterValidator(_zone)] = Field(
        "UTC", description="Zone of these times, such as Europe/Berlin. They follow its changes of the clock."
    )

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if not self.days:
            raise ValueError("days is empty: give some, or leave it out")
        if minutes(self.start) % 1440 == minutes(self.end) % 1440 and self.start != "00:00":
            raise ValueError(f"start and end are both {self.start}: give different ones, or leave both out for all day")
        return self

    def entry(self) -> dict[str, Any]:
        """Return it as :func:`scaler.schedule.least` reads it: days from Monday, and minutes after midnight."""
        return {
            "zone": self.time_zone,
            "days": [_DAYS.index(day) for day in self.days],
            "start": minutes(self.start),
            "end": minutes(self.end),
            "least": self.min_runners,
        }


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def check_minima(usual: int, schedule: Sequence[ScheduleConfig], most: int) -> None:
    """Raise ValueError where more runners would wait for jobs than there may be: usually, or by a schedule."""
    for key, least in [("", usual), *((f"schedule.{n}.", row.min_runners) for n, row in enumerate(schedule))]:
        if least > most:
            raise ValueError(f"{key}minRunners {least} is more than maxRunners {most}")


class Ec2GitHubConfig(Model):
    """What the runners serve. The credentials are in Secrets Manager; neither Pulumi nor a runner sees them."""

    url: Annotated[str, AfterValidator(github_url.check), AfterValidator(_no_enterprise)] = Field(
        description="Organization or repository, such as https://github.com/acme or https://github.com/acme/images."
    )
    secret: Arn = Field(
        description="ARN of the secret that registers runners: JSON with the app, installation and privateKey of a "
        "GitHub App, or with a token.",
        json_schema_extra=SENSITIVE,
    )
    webhook_secret: Arn | None = Field(
        None,
        description="ARN of the secret with which GitHub signs the webhook of an old stack, as plain text. Default: "
        "none, for there is no webhook: the stack listens to GitHub.",
        json_schema_extra=SENSITIVE,
    )
    group: int = Field(1, ge=1, description="Id of the runner group at GitHub; 1 is the default group.")

    @property
    def host(self) -> str:
        """GitHub's host."""
        return github_url.part(self.url, "host").lower()

    @property
    def api(self) -> str:
        """The address of GitHub's REST API."""
        return github_url.api(self.url)

    @property
    def owner(self) -> str:
        """The organization, or the owner of the repository."""
        return github_url.part(self.url, "owner")

    @property
    def repository(self) -> str | None:
        """The repository's name; None for all repositories of the organization."""
        return github_url.part(self.url, "name") or None


class AlarmConfig(Model):
    """After how long a waiting job raises an alarm, and who is notified."""

    minutes: int = Field(30, ge=2, le=1440, description="Minutes that a job may wait for a runner.")
    topic: Topic | None = Field(None, description="ARN of the SNS topic to notify. Default: none.")


class BuildMachineConfig(Model):
    """A machine that builds images of one platform. It runs during builds only; its layers are kept."""

    instance_type: InstanceType = Field(description="Instance type, such as c7i.4xlarge. Builds use no GPU and no EFA.")
    cache: Annotated[int, BeforeValidator(_gib, json_schema_input_type=int | str), Field(ge=50, le=16384)] = Field(
        500, description="Size of the volume for its layers, such as 500Gi; a number is in GiB."
    )
    idle: int = Field(
        15, ge=2, le=1440, description="Minutes without a connection after which it stops, as after a failed update."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_machine(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "replicas" in values:
            raise ValueError(
                "replicas: the builder on EC2 is one machine, which each update that builds starts and stops: leave "
                "replicas out and give a larger instanceType, or name several engines in slipway:engines"
            )
        return values


class PlatformBuildConfig(BuildMachineConfig):
    """The machine that builds the images of a further platform."""

    elsewhere: ClassVar[Mapping[str, str]] = {"image": "ami"}

    ami: Ami | None = Field(
        None, description="Id of its machine image. Default: the newest Deep Learning AMI of its architecture."
    )


def old_runners(url: str, releases: Mapping[str, str]) -> list[str]:
    """Return a line for each release of GitHub's runner that gets no job soon, by its key.

    GitHub's Enterprise Server has its own runners, and no such day.
    """
    today = datetime.now(UTC).date()
    lines = {key: old_runner(release, today) for key, release in releases.items() if github_url.in_cloud(url)}
    return [f"{key}: {line}" for key, line in lines.items() if line]


class Ec2BuildConfig(BuildMachineConfig):
    """The machine that builds the images of the stack's first platform, and those of further ones."""

    platforms: dict[Platform, PlatformBuildConfig] = Field(
        default_factory=dict,
        description="Machines that build the other platforms of the stack: {linux/arm64: {instanceType: c8g.4xlarge}}.",
    )


class Ec2RunnerSetConfig(Model):
    """Runners of one size on EC2: their machines, and how many there are."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "cache": "root",
        "cpu": "instanceTypes",
        "disk": "root",
        "gpus": "minGpus",
        "group": "github.group, or groupId of a set: an id",
        "image": "ami",
        "memory": "instanceTypes",
        "profile": "instanceTypes",
    }

    labels: tuple[Annotated[Label, AfterValidator(_custom)], ...] = Field(
        (),
        validate_default=False,
        description="Labels by which jobs choose these runners, besides the name of one of several sets. With the "
        "webhook of an old stack, jobs may also name self-hosted, linux, and x64 or arm64.",
    )
    instance_types: tuple[InstanceType, ...] = Field(
        (),
        validate_default=False,
        description="Instance types, the preferred one first. Each must have the GPUs and EFA interfaces below.",
    )
    min_gpus: int | None = Field(
        None, ge=0, description="Fewest NVIDIA GPUs that a type must have. Default: the fewest of the types."
    )
    efa: int | Literal["all"] = Field(
        0,
        description="EFA interfaces of each machine: a number, or all that its type has. Default: 0, as with EFA all "
        "machines are in one subnet. On Kubernetes it is the GPUs' share.",
    )
    ami: Ami | None = Field(None, description="Id of the machine image. Default: the newest Deep Learning AMI.")
    driver: Driver | None = Field(
        None,
        description="NVIDIA's driver of that machine image, such as 570.172.08. It must run the stack's images. "
        "Default: not known.",
    )
    reservation: ReservationConfig | None = Field(
        None, description="Machines that are reserved at EC2: these are taken first. Default: none."
    )
    spot: bool = Field(default=True, description="Take spot capacity first.")
    spot_patience: int = Field(
        5,
        ge=1,
        le=1440,
        description="Minutes that jobs and minRunners wait for spot capacity before on-demand is tried, or back.",
    )
    min_runners: int = Field(0, ge=0, description="Machines that wait for jobs; 0 costs nothing while idle.")
    max_runners: int = Field(4, ge=1, le=3000, description="Most machines at once.")
    schedule: tuple[ScheduleConfig, ...] = Field(
        (), description="Other minima by weekday and time. The greatest of those that hold counts, else minRunners."
    )
    idle: int = Field(10, ge=1, le=1440, description="Minutes that a machine without a job is kept after its start.")
    boot: int = Field(20, ge=5, le=120, description="Minutes within which a machine must register with GitHub.")
    max_lifetime: int = Field(
        7, ge=1, le=365, description="Days after which a machine is replaced, once its job is done."
    )
    root: Annotated[int, BeforeValidator(_gib, json_schema_input_type=int | str), Field(ge=75, le=16384)] = Field(
        200,
        description="Size of the root volume, such as 200Gi; a number is in GiB. Docker's layers are there too unless "
        "the type has NVMe disks.",
    )
    subnets: tuple[Subnet, ...] = Field(
        (), description="Subnets. Default: all of the VPC. With EFA exactly one, since a cluster is in one zone."
    )
    group_id: int | None = Field(
        None, ge=1, description="Id of the runner group at GitHub, in place of that of github.group."
    )

    @field_validator("labels", "instance_types")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len({text.lower() for text in value}) < len(value):
            raise ValueError("expected at least one, each only once")
        return value

    @field_validator("efa", mode="before")
    @classmethod
    def _interfaces(cls, value: object) -> object:
        """Refuse other values here: pydantic would report one error for each type of the union."""
        if value != "all" and not str(value).isdecimal():
            raise ValueError("expected a number of interfaces, or all")
        return value

    @property
    def most_waiting(self) -> int:
        """The most machines that wait for jobs at any time."""
        return max(self.min_runners, *(row.min_runners for row in self.schedule), 0)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of capacity besides reservations, in the order in which they are tried."""
        if self.reservation and not self.reservation.fallback:
            return ()
        return ("spot", "on-demand") if self.spot else ("on-demand",)

    @property
    def nodes_driver(self) -> tuple[str, str] | None:
        """NVIDIA's driver of the machines, and the key that says so; None if nothing does."""
        return (self.driver, "driver") if self.driver else None


SetName = Annotated[
    str,
    AfterValidator(_custom),
    form(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", "1 to 32 of a-z, 0-9 and -, such as h100"),
]


class Ec2RunnersConfig(SeveralSetsConfig, Ec2RunnerSetConfig):
    """GitHub Actions runners on EC2: each job gets a new machine, which ends with the job."""

    kind: Literal["ec2"] = Field(description="Runners on EC2.")
    region: Region = Field(description="AWS region, such as eu-west-1.")
    account: str = Field(pattern="^[0-9]{12}$", description="AWS account, 12 digits; quote it.")
    github: Ec2GitHubConfig = Field(description="Organization or repository whose jobs the runners take.")
    listener: bool | None = Field(
        None,
        description="Listen to GitHub for jobs, as a runner scale set. An old stack with github.webhookSecret listens "
        "beside its webhook, to move over. Default: true without github.webhookSecret.",
    )
    push: tuple[RepositoryName, ...] = Field(
        (),
        description="Repositories below the path of slipway:registry, of kind ecr, that jobs may push to, such as "
        "[service]; never build products. Default: none; jobs pull only.",
    )
    retries: int = Field(
        1, ge=0, le=5, description="How often a job is rerun after it lost its machine, as when spot capacity ends."
    )
    vpc: Vpc | None = Field(None, description="VPC. Default: the VPC of the subnets, else the account's default VPC.")
    endpoints: bool = Field(
        default=False,
        description="Create VPC endpoints for the AWS services that runners call, for subnets without a route to them.",
    )
    permissions_boundary: Policy | None = Field(
        None,
        description="ARN of the IAM policy that limits the roles of the stack, such as that of "
        "docs/runners/ec2-boundary.json. Default: none.",
    )
    alarm: AlarmConfig = Field(
        default_factory=lambda: AlarmConfig.model_validate({}), description="The alarm for a job that waits too long."
    )
    build: Ec2BuildConfig | None = Field(None, description="A machine that builds images: see buildOn.")
    log_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = Field(30, description="Days that logs are kept.")
    runner: str = Field("2.338.0", description="Version of GitHub's runner: see stacks/versions/runner.toml.")
    sets: dict[SetName, Ec2RunnerSetConfig] = Field(
        default_factory=dict,
        description="Several sets of runners in place of the one: {small: {instanceTypes: "
        "[g6.xlarge]}, h100: {instanceTypes: [p5.4xlarge], maxRunners: 2}}. Jobs choose one by its name. What a set "
        "leaves out is as given beside `sets`.",
    )

    @model_validator(mode="after")
    def _hears_of_jobs(self) -> Self:
        if self.listener is False and self.github.webhook_secret is None:
            raise ValueError("listener is false: nothing else tells of jobs without github.webhookSecret: leave it out")
        if self.sets and self.github.webhook_secret:
            raise ValueError(
                "sets: a webhook does not tell of which set a job is: leave out github.webhookSecret, after the stack "
                "has moved over (docs/runners/ec2-webhook.md)"
            )
        return self

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Self:
        if not self.sets:
            self._check_machines(info.context or {})
        self._check_sets()
        if self.runner not in runner_names():
            raise ValueError(
                f"runner '{one_line(self.runner)}' is not in stacks/versions/runner.toml; "
                f"it has {', '.join(runner_names())}"
            )
        arns = {
            "github.secret": _SECRET.fullmatch(self.github.secret),
            "github.webhookSecret": _SECRET.fullmatch(str(self.github.webhook_secret)),
            # The topic may be in any account: its own policy says who may publish.
            "permissionsBoundary": _POLICY.fullmatch(self.permissions_boundary or ""),
            "alarm.topic": _TOPIC.fullmatch(self.alarm.topic or ""),
        }
        for key, match in arns.items():
            for part, value in match.groupdict().items() if match else ():
                if value and value != getattr(self, part):
                    raise ValueError(f"{key} is in {part} {value}; the runners are in {getattr(self, part)}")
        if self.github.secret == self.github.webhook_secret:
            raise ValueError(
                "github.webhookSecret is the same as github.secret; create a secret of its own for it, and give its ARN"
            )
        return self

    def _check_machines(self, context: Mapping[str, Any]) -> None:
        """Check the keys of one set against each other; a ``context`` names it, and the keys that are of all sets."""
        missing = {"labels": self.labels or "set" in context, "instanceTypes": self.instance_types}
        for key, given in missing.items():
            if not given:
                raise ValueError(f"{key} is missing: give at least one")
        check_minima(self.min_runners, self.schedule, self.max_runners)
        unread = {
            "spot is false": () if self.spot else ("spot_patience",),
            "reservation.fallback is false": () if self.kinds else ("spot", "spot_patience"),
            "no machine waits for jobs with minRunners 0": () if self.most_waiting else ("max_lifetime",),
        }
        inherited = context.get("inherited", ())
        refuse_unread(self, {why: [key for key in keys if key not in inherited] for why, keys in unread.items()})
        if self.efa and len(self.subnets) != 1:
            raise ValueError("efa needs exactly one subnet: machines with EFA are in one placement group, in one zone")

    @property
    def listens(self) -> bool:
        """Whether GitHub tells the keeper itself of jobs: in place of a webhook, or beside it."""
        return self.listener or self.github.webhook_secret is None

    @property
    def warnings(self) -> list[str]:
        """A line for an old runner, and one for a webhook: what the stack does to have none."""
        old = old_runners(self.github.url, self.runner_releases)
        if self.github.webhook_secret is None:
            return old
        first = "" if self.listener else "have workflows name `labels` alone, set listener: true, and "
        line = f"{first}an hour after the `up` with listener: true, leave webhookSecret out"
        return [
            *old,
            f"slipway:runners.github.webhookSecret: no webhook is needed: {line} (docs/runners/ec2-webhook.md)",
        ]

    @property
    def runner_releases(self) -> dict[str, str]:
        """The release of GitHub's runner, by its key."""
        return {"slipway:runners.runner": self.runner}

    def resource_name(self, stack: str) -> str:
        """Return the beginning of the names of what a stack has for these runners; a set's follows a dot.

        No stack on EC2 has a dot in its name.
        """
        return f"slipway-{stack}.{self._set}" if self._set else f"slipway-{stack}"

    @property
    def scale_set(self) -> str:
        """The name of the set that these runners are, and of its scale set; empty for the only ones of a stack."""
        return self._set or ""

    @property
    def group(self) -> int:
        """The id of the runner group at GitHub."""
        return self.group_id or self.github.group

    def runner_labels(self, platform: str) -> tuple[str, ...]:
        """Return all labels of a runner outside of a scale set, GitHub's own first."""
        return ("self-hosted", "linux", {"linux/amd64": "x64", "linux/arm64": "arm64"}[platform], *self.labels)

    def served_labels(self, platform: str) -> tuple[str, ...]:
        """Return all labels that jobs may name: without a webhook, GitHub's own are not among them."""
        if self.github.webhook_secret:
            return self.runner_labels(platform)
        return (self._set, *self.labels) if self._set else self.labels

    def builders(self, platform: str) -> dict[str, BuildMachineConfig]:
        """Return the machines that build images by their platforms; ``platform`` is the first of the stack."""
        if self.build is None:
            return {}
        others: dict[str, BuildMachineConfig] = {str(other): build for other, build in self.build.platforms.items()}
        return {platform: self.build} | others

    def check_builders(self, platforms: Sequence[str], engines: Collection[str]) -> None:
        """Check that one machine or engine builds each platform; ``engines`` are platforms with an engine.

        Raises ValueError: a platform has none or two, or a machine is for no further platform of the stack.
        """
        first, *others = platforms
        machines = self.build.platforms if self.build else {}
        if first in machines:
            raise ValueError(
                f"runners.build.platforms.{first}: runners.build itself builds {first}, the stack's first platform: "
                "leave it out"
            )
        builders.check([first, *machines], first, platforms, engines)
        for other in others:
            if other not in engines and other not in machines:
                raise ValueError(
                    f"runners.build is one machine, for {first}, the first of slipway:platforms: give an instanceType "
                    f"in runners.{builders.build_key(other, first)}, or an engine in slipway:engines.{other}"
                )
