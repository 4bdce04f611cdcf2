"""``StackConfig``: the keys that every stack may have, whatever its flavor."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from stacks.config.ec2 import Ec2Runners
from stacks.config.kubernetes import KubernetesRunners
from stacks.config.mirrors import Mirrors
from stacks.config.model import Model
from stacks.config.registries import Registry
from stacks.config.registries.this_machine import LocalRegistry
from stacks.config.signing import Signer, Signing
from stacks.config.values import Label, Size
from stacks.references import check_prefixes, covering, qualified
from stacks.tags import check_extra, check_tail
from stacks.versions.pytorch import Machine

Runners = Annotated[KubernetesRunners | Ec2Runners, Field(discriminator="kind")]
"""What ``runners`` may be."""

_MOST_MOVING = 3
"""Extra tags in ECR."""


class StackConfig(Model):
    """What every stack may say, whatever its flavor."""

    flavor: str = Field(description="Which family of images the stack builds.")
    platform: Literal["linux/amd64", "linux/arm64"] = Field(
        "linux/amd64", description="Platform of every image of the stack."
    )
    publish: bool = Field(
        default=True, description="Push the images. false builds the whole chain and leaves it in the engine."
    )
    tag_suffix: Annotated[str, AfterValidator(check_tail)] | None = Field(
        None, description="Last part of the tags, to tell apart stacks that differ in what no field of a tag names."
    )
    registry: Registry = Field(default_factory=LocalRegistry, description="Where the images are pushed.")
    mirrors: Mirrors = Field(default_factory=Mirrors, description="Where builds fetch from instead.")
    runs_on: tuple[Label, ...] = Field(
        (), description="Labels of the GitHub Actions runners that publish the stack. Default: GitHub's own."
    )
    runners: Runners | None = Field(None, description="Machines for GitHub's jobs, and to build images on.")
    build_on: Literal["engine", "runners"] = Field(
        "engine",
        description="Where images are built: the machine's Docker engine, or the build service of the runners.",
    )
    budgets: dict[str, Size] = Field(
        default_factory=dict,
        description="Most compressed bytes that an image may have, by its name: {torch: 3.5 GB}. Above it, "
        "`slipway diff` fails.",
    )
    extra_tags: tuple[Annotated[str, AfterValidator(check_extra)], ...] = Field(
        (),
        description="Tags that each image gets beside its own and that move to the newest, such as latest. On another "
        "branch than main its name stands before them.",
    )
    signing: Signing | None = Field(
        None, description="How images are signed once they are pushed, and what is attested of them. Default: not."
    )
    trust: dict[str, Signer] = Field(
        default_factory=dict,
        description="Whose signature parents that others publish must have, by registry or repository; the longest "
        "match wins.",
    )

    @property
    def warnings(self) -> list[str]:
        """A line for each version that the tables neither confirm nor rule out."""
        return []

    @property
    def machine(self) -> Machine:
        """The platform's architecture."""
        return "amd64" if self.platform == "linux/amd64" else "arm64"

    @field_validator("extra_tags")
    @classmethod
    def _movable(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("one of them is there twice; leave one out")
        if len(value) > _MOST_MOVING and getattr(info.data.get("registry"), "kind", "") == "ecr":
            raise ValueError(
                f"at most {_MOST_MOVING} in ECR: it lets five kinds of tags move (ECR user guide, tag immutability), "
                "two of which are Slipway's own and signatures'"
            )
        return value

    @field_validator("trust")
    @classmethod
    def _prefixes(cls, value: dict[str, Signer]) -> dict[str, Signer]:
        check_prefixes(value)
        return value

    @field_validator("registry")
    @classmethod
    def _login(cls, value: Registry, info: ValidationInfo) -> Registry:
        if info.data.get("publish"):
            value.check_complete()
        return value

    @field_validator("build_on")
    @classmethod
    def _built(cls, value: str, info: ValidationInfo) -> str:
        if value == "runners" and "runners" in info.data:
            runners = info.data["runners"]
            if runners is None or runners.build is None:
                raise ValueError("the stack has no build service: give it runners with runners.build")
            if isinstance(runners, KubernetesRunners) and runners.build.rootless:
                raise ValueError("runners.build.rootless has no Docker API, which images are built with: leave one out")
            platform = info.data.get("platform")
            if platform and isinstance(runners, KubernetesRunners) and (why := runners.cannot_run(platform)):
                raise ValueError(f"{why}: leave one out")
            registry = info.data.get("registry")
            if info.data.get("publish") and registry and registry.of_this_machine:
                raise ValueError(
                    f"{registry.address} is this machine's own registry, which runners do not reach: give "
                    "slipway:registry another, or publish: false"
                )
        return value

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports of the registry and the mirrors, where they are named: what a build reaches beside the web.

        No build elsewhere reaches this machine's own registry, and each machine has it at another port.
        """
        mirrors = self.mirrors
        hosts = [*([] if self.registry.of_this_machine else [self.registry.repository]), *mirrors.images.values()]
        urls = [mirrors.apt, mirrors.python_index, mirrors.torch_index, mirrors.git, *mirrors.downloads.values()]
        found = [urlsplit(f"//{host}").port for host in hosts] + [urlsplit(url).port for url in urls if url]
        return tuple(sorted({port for port in found if port}))

    def pulled(self, reference: str) -> str:
        """Return where a build pulls an outside parent from: a mirror, and what the registry caches through it.

        Without pushing nobody is logged in to the registry, so nothing is pulled through it.
        """
        mirrored = self.mirrors.image(reference)
        return self.registry.pull_reference(mirrored) if self.publish else mirrored

    def public(self, pulled: str) -> list[str]:
        """Return the names for which :meth:`pulled` gives this one: public ones before those of mirrors and caches."""
        names = [pulled]
        elsewhere = [*self.mirrors.images.items(), *self.registry.cached.items()]
        for name in names:
            for source, target in elsewhere:
                found = covering([target], name)
                public = source + found[1] if found else name
                if public not in names and qualified(self.pulled(public)) == qualified(pulled):
                    names.append(public)
        return names[::-1]
