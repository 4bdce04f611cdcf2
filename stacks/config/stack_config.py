"""``StackConfig``: the keys that every stack may have, whatever its flavor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from containers.addresses.engine_address import in_clear
from containers.errors import one_line
from containers.registry.reference import Reference, check_prefixes, covering, on_loopback
from stacks.config.additions import OwnImageConfig, PackagesConfig, Variables
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.fetching.build_logins import KEY, BuildLoginConfig, check_host
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.gates.inspection_gate import InspectionConfig
from stacks.config.gates.promotion_gate import PromotionConfig
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.model import SENSITIVE, Model
from stacks.config.publishing.compression import Compression, GzipConfig
from stacks.config.publishing.warm import WarmConfig
from stacks.config.registries import Registry
from stacks.config.registries.this_machine import LocalRegistryConfig
from stacks.config.signing import SignerConfig, SigningConfig
from stacks.config.stack_file import NAMESPACE
from stacks.config.values import PLATFORMS, Engines, Labels, Platform, Size
from stacks.tags import check_extra, check_tail
from stacks.versions.cuda_toolkit import Machine
from stacks.versions.incompatible import Unverified
from stacks.versions.tables import Reliance, weak_line

Runners = Annotated[KubernetesRunnersConfig | Ec2RunnersConfig, Field(discriminator="kind")]
"""What ``runners`` may be."""

_MOST_MOVING = 3
"""Extra tags in ECR."""


class StackConfig(Model):
    """The keys that every stack may have, whatever its flavor."""

    flavor: str = Field(description="The family of images that the stack builds.")
    platform: Platform = Field("linux/amd64", description="Platform of the stack's images.")
    platforms: tuple[Platform, ...] = Field(
        (),
        validate_default=False,
        description="Platforms of the stack's images, in place of `platform`. Each image is built for all of them, and "
        "one tag names them.",
    )
    publish: bool = Field(default=True, description="Push the images. false builds them and leaves them in the engine.")
    tag_suffix: Annotated[str, AfterValidator(check_tail)] | None = Field(
        None, description="Last part of the tags. It tells apart stacks whose tags would otherwise be equal."
    )
    registry: Registry = Field(default_factory=LocalRegistryConfig, description="Where the images are pushed.")
    compression: Compression = Field(
        default_factory=lambda: GzipConfig(kind="gzip"),
        description="How layers are compressed: {kind: gzip}, or {kind: zstd, level: 4}, for engines that can pull it. "
        "Build products stay gzip.",
    )
    warm: WarmConfig | None = Field(
        None,
        description="What `slipway warm` runs in a published image, for a layer with the caches that it leaves. "
        "Default: nothing.",
    )
    mirrors: MirrorsConfig = Field(
        default_factory=MirrorsConfig, description="Addresses that replace the public ones in builds."
    )
    build_secrets: dict[Annotated[str, AfterValidator(check_host)], BuildLoginConfig] = Field(
        default_factory=dict,
        json_schema_extra=SENSITIVE,  # a password may stand where its block belongs
        description="Logins for builds, by host of an address in slipway:mirrors. Only the embedded docker "
        "provider takes them.",
    )
    packages: PackagesConfig | None = Field(
        None,
        description="Packages besides those of the stack's last image. The stack then has one more image with them, "
        "`<image>-packages`.",
    )
    images: tuple[OwnImageConfig, ...] = Field(
        (), description="Images of one's own: a Dockerfile or packages each, on an image of the stack."
    )
    environment: Variables = Field(
        default_factory=dict, description="Variables of every image that is run, besides those that it has."
    )
    runs_on: Labels = Field(
        (), description="Labels of the GitHub Actions runners that publish the stack. Default: GitHub's own."
    )
    runners: Runners | None = Field(None, description="GitHub Actions runners, which can also build the images.")
    engines: dict[Platform, Engines] = Field(
        default_factory=dict,
        description="Docker engines that build a platform's images: {linux/arm64: ssh://builder-arm}. Those of a list "
        "share them. Default: the machine's Docker engine for all platforms.",
    )
    build_on: Literal["engine", "runners"] = Field(
        "engine",
        description="Where images are built: the machine's Docker engine, or the build service of the runners.",
    )
    budgets: dict[str, Size] = Field(
        default_factory=dict,
        description="Largest compressed size of an image, by its name: {torch: 3.5 GB}. `slipway diff` fails above it.",
    )
    extra_tags: tuple[Annotated[str, AfterValidator(check_extra)], ...] = Field(
        (),
        description="Additional, mutable tags of each image, such as latest. On a branch other than main they start "
        "with its name.",
    )
    signing: SigningConfig | None = Field(
        None, description="How images are signed after a push, and what is attested. Default: no signature."
    )
    trust_registry: bool = Field(
        default=False,
        description="Without signing: take build products from the registry by their tags, although anyone who "
        "can push there can replace them. Default: they are built here, unless the registry is on "
        "this machine.",
    )
    inspection: InspectionConfig = Field(
        default_factory=InspectionConfig, description="What an image must load before it gets its tag."
    )
    vulnerabilities: VulnerabilitiesConfig | None = Field(
        None, description="Known vulnerabilities that keep an image from its tag. Default: no scan."
    )
    promotion: PromotionConfig | None = Field(
        None,
        description="Tags that `slipway promote` moves, and the evidence that an image needs for it. Default: none.",
    )
    trust: dict[str, SignerConfig] = Field(
        default_factory=dict,
        description="Signers whose signature outside parents need, by registry or repository. The longest match wins.",
    )

    unverified: bool = Field(
        default=False,
        description="Accept releases that no table confirms, with a warning, at your own risk. What a table would say "
        "of such a release is taken from the nearest one, or is not checked.",
    )

    @model_validator(mode="before")
    @classmethod
    def _first_platform(cls, values: Any) -> Any:
        """Let keys be checked for the first platform. The others are checked when their images are made.

        If ``platform`` is given too, only its images are made.
        """
        if (
            not isinstance(values, Mapping)
            or not isinstance(values.get("platforms"), list | tuple)
            or "platform" in values
        ):
            return values
        first = next(iter(values["platforms"]), None)
        return {**values, "platform": first} if first in PLATFORMS else values

    @field_validator("platforms")
    @classmethod
    def _several(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("names no platform: name one, or leave the key out")
        if len(set(value)) < len(value):
            raise ValueError("one of them is repeated; remove it")
        return value

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release of the stack: it raises ``Unverified`` if no table confirms the release."""
        yield from ()

    def reliances(self) -> Iterator[Reliance]:
        """Yield the values that the stack takes from tables with weak rows: no public source confirms them."""
        yield from ()

    @property
    def _unlisted(self) -> list[Unverified]:
        refusals = []
        for check in self.listed():
            try:
                check()
            except Unverified as refusal:
                refusals.append(refusal)
        return refusals

    @model_validator(mode="after")
    def _confirmed(self) -> Self:
        unlisted = self._unlisted
        if unlisted and not self.unverified:
            raise unlisted[0]
        return self

    @property
    def warnings(self) -> list[str]:
        """A line for each version in doubt, and for all that are unverified."""
        lines = []
        if self.trust_registry:
            lines.append(
                f"{NAMESPACE}:trustRegistry: whoever may push to {self.registry.repository} can replace the build "
                f"products that this stack takes; {NAMESPACE}:signing needs no such trust"
            )
        accepted = [f"{release.field} '{release.value}' {release.instead}" for release in self._unlisted]
        if accepted:
            lines.append(f"{NAMESPACE}:unverified: at your own risk, as no table has it: {'; '.join(accepted)}")
        lines += self.runners.warnings if self.runners else []
        lines += weak_line(self.reliances())
        open_engines = sorted({each for pool in self.engines.values() for each in pool if in_clear(each)})
        if open_engines:
            lines.append(
                f"{NAMESPACE}:engines: {', '.join(open_engines)}: no TLS: whoever reaches it is root there and reads "
                "the logins of builds: give ssh://"
            )
        elsewhere = sorted(set(self.build_secrets) - self.mirrors.hosts.keys())
        if elsewhere:
            lines.append(
                f"{KEY}: {', '.join(elsewhere)}: no address in {NAMESPACE}:mirrors is of that host: "
                "each step that fetches gets the login"
            )
        return lines

    @property
    def profiles(self) -> tuple[str, ...]:
        """The kinds of nodes that the stack names, by the names of ``stacks/versions/nodes.toml``."""
        runners = self.cluster_runners.profile if self.cluster_runners else None
        checks = self.promotion.gpu_checks.profile if self.promotion and self.promotion.gpu_checks else None
        return tuple(name for name in (runners, checks) if name)

    @property
    def cluster_runners(self) -> KubernetesRunnersConfig | None:
        """The runners if they are on a Kubernetes cluster."""
        return self.runners if isinstance(self.runners, KubernetesRunnersConfig) else None

    @property
    def every_platform(self) -> tuple[str, ...]:
        """The platforms of the stack's images, one or more."""
        return self.platforms or (self.platform,)

    @property
    def machine(self) -> Machine:
        """The platform's architecture."""
        return "amd64" if self.platform == "linux/amd64" else "arm64"

    @field_validator("extra_tags")
    @classmethod
    def _movable(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("one of them is repeated; remove it")
        if len(value) > _MOST_MOVING and getattr(info.data.get("registry"), "kind", "") == "ecr":
            raise ValueError(
                f"at most {_MOST_MOVING} in ECR: it lets five kinds of tags move (ECR user guide, tag immutability), "
                "two of which are Slipway's own and signatures'"
            )
        return value

    @field_validator("build_secrets", mode="before")
    @classmethod
    def _one_login_of_a_host(cls, value: object) -> object:
        hosts = [str(host).lower() for host in value] if isinstance(value, Mapping) else []
        if twice := sorted({one_line(host) for host in hosts if hosts.count(host) > 1}):
            raise ValueError(f"{', '.join(twice)}: two logins of one host, whose letters are small or not: keep one")
        return value

    @field_validator("build_secrets")
    @classmethod
    def _encrypted(cls, value: dict[str, BuildLoginConfig], info: ValidationInfo) -> dict[str, BuildLoginConfig]:
        mirrors = info.data.get("mirrors")
        for host, address in mirrors.hosts.items() if mirrors else ():
            if host in value and address.startswith("http:") and not on_loopback(host):
                raise ValueError(f"the login of {host} would be sent in clear text to {address}: give https:// there")
        return value

    @field_validator("trust")
    @classmethod
    def _prefixes(cls, value: dict[str, SignerConfig]) -> dict[str, SignerConfig]:
        check_prefixes(value)
        return value

    @field_validator("engines")
    @classmethod
    def _of_this_stack(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        platforms: tuple[str, ...] = info.data.get("platforms") or (info.data.get("platform", ""),)
        for platform in value if "platforms" in info.data else ():  # else they are a mistake of their own
            if platforms[0] and platform not in platforms:
                raise ValueError(
                    f"{platform} is no platform of the stack, which has {', '.join(platforms)}: leave it out"
                )
        return value

    @field_validator("registry")
    @classmethod
    def _login(cls, value: Registry, info: ValidationInfo) -> Registry:
        if info.data.get("publish"):
            value.check_complete()
        return value

    @field_validator("trust_registry")
    @classmethod
    def _unsigned(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("signing"):
            raise ValueError("slipway:signing says already whose build products count; leave trustRegistry out")
        return value

    @field_validator("promotion")
    @classmethod
    def _proven(cls, value: PromotionConfig | None, info: ValidationInfo) -> PromotionConfig | None:
        if value is None:
            return None
        if "signing" in info.data and info.data["signing"] is None:
            raise ValueError("evidence counts by its signature: set slipway:signing, or leave promotion out")
        extra = info.data.get("extra_tags", ())
        if both := sorted({*extra} & {*value.tags}):
            raise ValueError(
                f"tags: '{both[0]}' is in slipway:extraTags too, which move without evidence: leave it out of one"
            )
        inspection = info.data.get("inspection")
        if value.loading and inspection and not inspection.gate:
            raise ValueError(
                "slipway:inspection.gate is false, so no inspection is attested: set loading: false as well"
            )
        if len(extra) + len(value.tags) > _MOST_MOVING and getattr(info.data.get("registry"), "kind", "") == "ecr":
            raise ValueError(f"tags: at most {_MOST_MOVING} in ECR, together with slipway:extraTags")
        return value

    @field_validator("build_on")
    @classmethod
    def _built(cls, value: str, info: ValidationInfo) -> str:
        if value == "runners" and "runners" in info.data:
            runners = info.data["runners"]
            if runners is None or runners.build is None:
                raise ValueError("the stack has no build service: set runners.build")
            if isinstance(runners, KubernetesRunnersConfig) and runners.build.rootless:
                raise ValueError(
                    "runners.build.rootless has no Docker API, which builds need: leave one of the two out"
                )
            if isinstance(runners, KubernetesRunnersConfig) and runners.build.jobs:
                raise ValueError(
                    "runners.build.jobs is true: what is published would be built where every job is root; leave jobs "
                    "out, or build on the engine"
                )
            if info.data.keys() >= {"platform", "platforms", "engines"}:  # else they are a mistake of their own
                platforms: Sequence[str] = info.data["platforms"] or [info.data["platform"]]
                runners.check_builders(platforms, info.data["engines"])
            registry = info.data.get("registry")
            if info.data.get("publish") and registry and registry.of_this_machine:
                raise ValueError(
                    f"{registry.address} is this machine's own registry, which runners do not reach: give "
                    "slipway:registry another, or publish: false"
                )
        return value

    @property
    def added_variables(self) -> Mapping[str, str]:
        """The variables that every image to run gets at its end."""
        return self.environment

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports that addresses of the registry and of mirrors name.

        Builds need them besides the ports of the web. This machine's own registry is left out: no other machine reaches
        it.
        """
        mirrors = self.mirrors
        hosts = [*([] if self.registry.of_this_machine else [self.registry.repository]), *mirrors.images.values()]
        ports = [urlsplit(f"//{host}").port for host in hosts] + [urlsplit(url).port for url in mirrors.urls]
        return tuple(sorted({port for port in ports if port}))

    def pulled(self, reference: str) -> str:
        """Return the reference that a build pulls an outside parent by: a mirror's, or that of the registry's cache.

        A stack that pushes nothing does not log in to the registry, so it does not use the cache.
        """
        mirrored = self.mirrors.image(reference)
        return self.registry.pull_reference(mirrored) if self.publish else mirrored

    def public(self, pulled: str) -> list[str]:
        """Return the references that :meth:`pulled` turns into this one, public ones first."""
        names = [pulled]
        elsewhere = [*self.mirrors.images.items(), *self.registry.cached.items()]
        for name in names:
            for source, target in elsewhere:
                match = covering([target], name)
                public = source + match[1] if match else name
                if public not in names and Reference.of(self.pulled(public)).normal == Reference.of(pulled).normal:
                    names.append(public)
        return names[::-1]
