"""The engine of each image of a plan and the steps after its build, decided before anything is declared.

:func:`place` needs neither Pulumi nor a network. What it says, :mod:`components.deployment` declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from containers.platform_name import architecture
from containers.registry.reference import Reference
from stacks.config.builders import taking
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from stacks.config.publishing.compression import ZstdConfig
from stacks.config.signing import SignerConfig, SigningConfig
from stacks.config.stack_config import StackConfig
from stacks.placement.copies import with_copies
from stacks.plan import Plan, PlannedImage
from stacks.spec import ImageSpec
from stacks.versions.nodes import node

SOCKETS: Final = ".slipway/engines"
"""The folder of the engines' sockets, relative to the checkout, where the program and the provider run."""

EngineKind = Literal["default", "platform", "configured", "cluster", "machine"]
"""``default`` is the docker client's own engine, without a provider of its own. ``platform`` is the same engine as the
provider of one platform. ``configured`` are those of ``slipway:engines``. ``cluster`` is the runners' build service,
``machine`` the runners' builder on EC2."""


@dataclass(frozen=True)
class BuildEngine:
    """An engine that builds images of a ``platform``; the default one has none.

    ``address`` is the socket at which several engines are one; it is empty for an engine without such a socket.
    """

    kind: EngineKind
    platform: str = ""
    address: str = ""


@dataclass(frozen=True)
class Reuse:
    """When a product in the registry counts: if ``signer`` signed it; without one, if the registry is ``trusted``."""

    signer: SignerConfig | None
    trusted: bool


@dataclass(frozen=True)
class Gates:
    """What keeps an image from its tag, as inputs of resources.

    ``exceptions`` are the faults of loading that do not count, as ``slipway:inspection`` lists them; None if the image
    is not inspected. ``vulnerabilities`` is ``slipway:vulnerabilities`` as JSON; None if the image is not scanned.
    ``question`` is what an inspection is asked beside loading, None for nothing: ``page``, the bytes of the largest
    page of the nodes of the image's platform that the stack names, and ``requirements``, whether contradicting
    requirements are faults. ``compiled`` is that of :class:`stacks.spec.ImageSpec`.
    """

    exceptions: tuple[Mapping[str, str], ...] | None = None
    vulnerabilities: Mapping[str, Any] | None = None
    question: Mapping[str, Any] | None = None
    compiled: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.exceptions is not None or self.vulnerabilities is not None


@dataclass(frozen=True)
class PlacedImage:
    """An image, its engine and what happens to it.

    ``built_as`` is the name of its build: one with checks is pushed under a name that nothing refers to, and gets its
    tag after them. ``pushed`` says whether it leaves its engine. ``level`` is that of zstd; None for the engine's own
    gzip, as products have it: a changed compression compiles nothing again. ``needs_registry`` says that this machine
    must reach the registry. ``reuse`` is None for an image that is not a product. ``extra_tags`` are set after the
    push, and ``attested`` is made after it, in this order.
    """

    image: PlannedImage
    engine: BuildEngine
    built_as: str
    pushed: bool
    level: int | None
    needs_registry: bool
    reuse: Reuse | None
    gates: Gates
    extra_tags: tuple[str, ...]
    attested: tuple[str, ...]

    @property
    def name(self) -> str:
        """The image's name in the stack."""
        return self.image.spec.name

    @property
    def kept(self) -> bool:
        """Whether the registry keeps it by its name; an index keeps the images of its platforms."""
        return not self.image.spec.is_part

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the stack's images that its build or its checks read."""
        checks = self.image.content.checks
        return (*self.image.siblings.values(), *(checks.siblings.values() if checks else ()))


@dataclass(frozen=True)
class PlacedValidation:
    """The image that GPU checks run in: a ``variant`` of the stack, or else an outside ``reference``.

    ``private`` says that the login of the stack's registry pulls it.
    """

    variant: str | None
    reference: str
    private: bool


@dataclass(frozen=True)
class Placement:
    """A plan and where it is built.

    ``plan`` is as planned; ``built`` has the copies of products that further engines need. ``engines`` are all to
    declare: also builders without an image, which runners' jobs may use.
    """

    plan: Plan
    built: Plan
    images: tuple[PlacedImage, ...]
    engines: tuple[BuildEngine, ...]
    validation: PlacedValidation | None

    def on(self, engine: BuildEngine) -> list[PlacedImage]:
        """Return the images that an engine builds."""
        return [placed for placed in self.images if placed.engine == engine]

    def work(self, engine: BuildEngine) -> dict[str, str]:
        """Return what an engine does with its images after their build, by a name: a builder is on when it changes.

        That is the content of their checks, and whether unpushed images go through gates there.
        """
        result: dict[str, str] = {}
        for placed in self.on(engine):
            if checks := placed.image.content.checks:
                result[f"{placed.name}-checks"] = checks.folder
            if placed.gates and not placed.pushed:
                result[f"{placed.name}-inspection"] = "saved"
        return result


def address(stack: str, platform: str) -> str:
    """Return the address of a platform's engines, or of its replicas, for the docker provider.

    It is a socket in the checkout, whichever engines there are: one more, or one less, changes no resource.
    """
    return f"unix://{SOCKETS}/{stack}-{architecture(platform)}.sock"


def place(plan: Plan) -> Placement:
    """Return the engine of each image of a plan, and the steps after its build."""
    built, builders = with_copies(plan), _builders(plan)
    engines = _platform_engines(plan, several=bool(plan.indexes and not builders))
    # What is the same for all platforms, such as a source, may be for a platform of no builder.
    default = {image.spec.platform: BuildEngine("default") for image in built.images}
    if builders:
        default = {platform: builders[taking(builders, platform)] for platform in default}
    by_platform = default | builders | engines
    images = tuple(_placed(plan.config, image, by_platform[image.spec.platform]) for image in built.images)
    return Placement(plan, built, images, tuple(dict.fromkeys(by_platform.values())), _validation(plan))


def _builders(plan: Plan) -> dict[str, BuildEngine]:
    """Return the runners' engines for images, by platform, that of the runners first."""
    config = plan.config
    if config.build_on != "runners":
        return {}
    if (runners := config.cluster_runners) and runners.build:
        return {each: BuildEngine("cluster", each, address(plan.stack, each)) for each in runners.build_pools}
    if isinstance(config.runners, Ec2RunnersConfig):
        return {each: BuildEngine("machine", each) for each in config.runners.builders(config.platform)}
    return {}


def _platform_engines(plan: Plan, *, several: bool) -> dict[str, BuildEngine]:
    """Return the engines with a provider for one platform: configured ones, and ``several`` of this machine's.

    A stack for several platforms has them from its first update on: an image that moves between providers is replaced.
    """
    config = plan.config
    engines: dict[str, BuildEngine] = {}
    for platform in config.every_platform:
        if platform in config.engines:
            engines[platform] = BuildEngine("configured", platform, address(plan.stack, platform))
        elif several:
            engines[platform] = BuildEngine("platform", platform)
    return engines


def _placed(config: StackConfig, image: PlannedImage, engine: BuildEngine) -> PlacedImage:
    checks, product, signing = image.content.checks is not None, image.spec.product, config.signing
    gates = _gates(config, image.spec) if (checks or image.spec.own) and not product else Gates()
    return PlacedImage(
        image=image,
        engine=engine,
        built_as=image.unchecked_reference if (checks or gates) and config.publish else image.reference,
        pushed=config.publish,
        level=_level(config) if config.publish and not product else None,
        # A remote engine may reach a registry that this machine does not. Signatures and checked tags are made here.
        needs_registry=config.publish and (config.build_on == "engine" or bool(signing) or checks or bool(gates)),
        reuse=Reuse(signing, config.registry.trusted or config.trust_registry) if product else None,
        gates=gates,
        extra_tags=image.extra_tags if config.publish and not image.spec.is_part else (),
        attested=_attested(config, signing, gates, product=product) if config.publish and signing else (),
    )


def _gates(config: StackConfig, spec: ImageSpec) -> Gates:
    exceptions = tuple(row.model_dump() for row in config.inspection.exceptions) if config.inspection.gate else None
    policy = config.vulnerabilities.model_dump(mode="json", by_alias=True) if config.vulnerabilities else None
    return Gates(exceptions, policy, inspection_question(config, spec.platform), spec.compiled)


def inspection_question(config: StackConfig, platform: str) -> Mapping[str, Any] | None:
    """Return what an inspection of a stack's images for a platform is asked: see :class:`Gates`."""
    pages = [each.page for each in map(node, config.profiles) if each.page and f"linux/{each.arch}" == platform]
    page = {"page": max(pages)} if pages else {}
    return {**page, **({"requirements": True} if config.inspection.requirements else {})} or None


def _level(config: StackConfig) -> int | None:
    return config.compression.level if isinstance(config.compression, ZstdConfig) else None


def _attested(config: StackConfig, signing: SigningConfig, gates: Gates, *, product: bool) -> tuple[str, ...]:
    """Return what is signed of an image. Reuse of a product needs its signature only: its tag says what it is."""
    if product:
        return ("signature",)
    vex = isinstance(config.vulnerabilities, VulnerabilitiesConfig) and bool(config.vulnerabilities.exceptions)
    chosen = {
        "signature": True,
        "sbom": signing.sbom,
        "provenance": signing.provenance,
        "loading": gates.exceptions is not None,
        "scan": gates.vulnerabilities is not None,
        "vex": vex,
    }
    return tuple(name for name, wanted in chosen.items() if wanted)


def _validation(plan: Plan) -> PlacedValidation | None:
    runners, registry = plan.config.cluster_runners, Reference(plan.config.registry.repository).normal.host
    validation = runners.validation if runners else None
    if validation is None:
        return None
    if validation.image in {*plan.indexes, *(image.spec.name for image in plan.images)}:
        return PlacedValidation(validation.image, "", private=True)
    reference = plan.config.mirrors.image(validation.image)
    return PlacedValidation(None, reference, private=Reference.of(reference).normal.host == registry)
