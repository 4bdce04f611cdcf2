"""A placed plan's components: its registry, its engines, its images in order, and what the stack exports."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pulumi
import pulumi_docker as docker

from components import provider_arguments
from components.image import ImageVariant, ImageVariantArgs
from components.reached_engine import ReachedEngine
from components.registry.interface import Registry
from components.update_settings import UpdateSettings
from containers.errors import SlipwayError
from containers.platform_name import architecture
from scaler.app_key import Unreadable
from stacks.config import ec2, kubernetes
from stacks.config.registries.generic import GenericRegistryConfig
from stacks.differences import file_list
from stacks.placement import BuildEngine, Placement
from stacks.plan import Plan, PlannedImage

if TYPE_CHECKING:
    from components.runners.ec2.ec2_deployment import Deployed
    from components.runners.kubernetes.kubernetes_runners import KubernetesRunners
    from components.supply_chain.image_index import ImageIndex
    from components.supply_chain.verified_parent import VerifiedParent
    from containers.engine.replicas import Replicas


class DeclaredEngine(NamedTuple):
    """An engine's provider, None for the default one, and how this machine reaches what it built."""

    provider: docker.Provider | None
    reached: ReachedEngine


def deploy(placement: Placement, replicas: Mapping[str, Replicas] | None = None) -> dict[str, Any]:
    """Declare all resources of a placed plan and return the stack's outputs.

    ``replicas`` are those of the stack's build service that :func:`components.engines.start` serves, by platform.

    ``images`` maps each image to its ``ref``, ``digest`` and ``tag``. Where it has several ``platforms``, the ``ref``
    and ``digest`` are the index's, and each platform has its own; ``merged`` is false and the index's are missing where
    nothing is pushed. ``products`` does the same for build products. ``plan`` has the contents of each, and
    ``planFiles`` lists the files that its build reads. ``checkFiles`` lists those that its checks read besides. A
    preview knows them all. They have each image once, as ``slipway show`` has, however many engines build it.
    ``runners`` says where the stack's runners are, and whether the GPU checks passed.

    The other outputs depend on the stack's configuration. ``signed`` has each image's signature, SBOM and provenance,
    and each product's signature. ``extraTags`` has the additional tags, and ``verifiedParents`` the signers of outside
    parents.
    """
    plan, runners = placement.plan, placement.plan.config.runners
    settings = UpdateSettings.of(placement)
    registry = _registry(plan)
    # Before the images, which may be built there. A mistake that only AWS knows ends the update before a build.
    cluster = _cluster(plan, plan.config.cluster_runners) if plan.config.cluster_runners else None
    machines = _machines(plan, runners) if isinstance(runners, ec2.Ec2RunnersConfig) else None
    engines = {engine: _engine(placement, engine, cluster, machines, replicas or {}) for engine in placement.engines}
    for engine in engines.values():
        settings.lend(engine.provider)
    verified = _supply_chain().verified(plan, registry) if plan.signers or plan.others else {}
    variants = _variants(placement, registry, engines, verified)
    indexes = _indexes(plan, registry, variants) if plan.indexes and plan.config.publish else {}
    if machines:
        _stop(placement, machines, variants)
    outputs = _image_outputs(plan, variants, indexes)
    if cluster:
        outputs["runners"] = {**cluster.outputs, **_validated(placement, cluster, {**variants, **indexes}, registry)}
    if machines:
        outputs["runners"] = machines.outputs
    if plan.config.publish and (plan.config.signing or plan.config.extra_tags):
        outputs |= _supply_chain().after_push(placement, registry, variants, indexes)
    if plan.signers:
        outputs["verifiedParents"] = {ref: verified[ref].by for ref in plan.signers}
    return outputs | _plan_outputs(plan)


def _variants(
    placement: Placement,
    registry: Registry,
    engines: Mapping[BuildEngine, DeclaredEngine],
    verified: Mapping[str, VerifiedParent],
) -> dict[str, ImageVariant]:
    """Declare the images, each on its engine, after its parents."""
    variants: dict[str, ImageVariant] = {}
    for placed in placement.images:
        engine, image = engines[placed.engine], placed.image
        parents = {name: variants[name] for name in placed.parents if name in variants}
        after = [verified[value] for value in image.args.values() if value in verified]
        others = placement.plan.others
        pulled = {name: verified[value].pulled for name, value in image.args.items() if value in others}
        # A component that depends on its parents' components is listed after them.
        before = [registry, *(variants[name] for name in image.siblings.values())]
        variants[placed.name] = ImageVariant(
            placed.name,
            ImageVariantArgs(placed, registry, engine.reached, parents, after, pulled),
            pulumi.ResourceOptions(depends_on=before, providers=[engine.provider] if engine.provider else None),
        )
        if placed.kept:
            registry.keep(placed.name, variants[placed.name].ref, variants[placed.name])
    return variants


def _engine(
    placement: Placement,
    engine: BuildEngine,
    cluster: KubernetesRunners | None,
    machines: Deployed | None,
    replicas: Mapping[str, Replicas],
) -> DeclaredEngine:
    """Declare an engine. A builder on EC2 is on before the first of its images."""
    platform = engine.platform
    if engine.kind == "cluster" and cluster:
        provider = cluster.engine(platform, engine.address, replicas.get(platform))
        return DeclaredEngine(provider, cluster.reached_engine(platform, engine.address))
    if engine.kind == "machine" and machines:
        tags = {placed.name: placed.image.tag for placed in placement.on(engine)}
        builder = machines.builders[platform]
        return DeclaredEngine(builder.engine(tags | placement.work(engine)), builder.reached_engine)
    if engine.kind == "default":
        return DeclaredEngine(None, ReachedEngine.of_settings())
    arguments = {**provider_arguments.of(docker.Provider), "disable_docker_daemon_check": True}
    if engine.address:
        arguments["host"] = engine.address
    provider = docker.Provider(f"engine-{architecture(platform)}", **arguments)
    return DeclaredEngine(provider, ReachedEngine(engine.address) if engine.address else ReachedEngine.of_settings())


def _stop(placement: Placement, machines: Deployed, variants: Mapping[str, ImageVariant]) -> None:
    """Stop each builder on EC2 after the last of its images."""
    for engine in placement.engines:
        if engine.kind == "machine":
            built = {placed.name: variants[placed.name] for placed in placement.on(engine)}
            digests = {name: pulumi.Output.concat(variant.tag, "@", variant.digest) for name, variant in built.items()}
            machines.builders[engine.platform].stop_after({**digests, **placement.work(engine)}, list(built.values()))


def _indexes(plan: Plan, registry: Registry, variants: Mapping[str, ImageVariant]) -> dict[str, ImageIndex]:
    """Declare the index of each image that has several platforms; it waits for all of them."""
    from components.supply_chain.image_index import ImageIndex, ImageIndexArgs  # noqa: PLC0415 - few stacks have one

    indexes: dict[str, ImageIndex] = {}
    for name, images in plan.indexes.items():
        parts = {image.spec.platform: variants[image.spec.name].ref for image in images}
        login = registry.login(list(parts.values()))
        args = ImageIndexArgs(images[0].index_reference or "", parts, login)
        indexes[name] = ImageIndex(name, args)
        registry.keep(name, indexes[name].ref, indexes[name])
    return indexes


def _image_outputs(
    plan: Plan, variants: Mapping[str, ImageVariant], indexes: Mapping[str, ImageIndex]
) -> dict[str, Any]:

    def built(image: PlannedImage) -> dict[str, Any]:
        variant = variants[image.spec.name]
        return {"ref": variant.ref, "digest": variant.digest, "tag": image.tag}

    outputs: dict[str, Any] = {"images": {}}
    for image in plan.images:
        if not image.spec.is_part:
            outputs.setdefault("products" if image.spec.product else "images", {})[image.spec.name] = built(image)
    for name, images in plan.indexes.items():
        of_index: dict[str, Any] = (
            {"ref": indexes[name].ref, "digest": indexes[name].digest} if name in indexes else {"merged": False}
        )
        parts = {image.spec.platform: built(image) for image in images}
        outputs["images"][name] = {**of_index, "tag": images[0].index_tag, "platforms": parts}
    return outputs


def _plan_outputs(plan: Plan) -> dict[str, Any]:
    """Return the contents of all images; files are separate texts, of which Pulumi prints the changed lines."""
    contents: dict[str, Any] = {}
    files: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    for image in plan.images:
        contents[image.spec.name] = dict(image.contents)
        files[image.spec.name] = file_list(contents[image.spec.name].pop("files"))
        if image.content.checks:
            checks[image.spec.name] = file_list(image.checks_contents["files"])
    return {"plan": contents, "planFiles": files, **({"checkFiles": checks} if checks else {})}


def _supply_chain() -> ModuleType:
    from components.supply_chain import declare  # noqa: PLC0415 - no other stack should pay for its imports

    return declare


def _registry(plan: Plan) -> Registry:
    """Declare the registry by the module of its kind: few stacks need what ECR's imports.

    A kind with a user name and a password is a model alone, and has the component of ``generic``.
    """
    config = plan.config.registry
    kind = "generic" if isinstance(config, GenericRegistryConfig) else config.kind
    module = importlib.import_module(f"components.registry.{kind}_registry")
    registry: Registry = module.declare(plan)
    return registry


def _cluster(plan: Plan, runners: kubernetes.KubernetesRunnersConfig) -> KubernetesRunners:
    from components.runners.kubernetes import kubernetes_runners  # noqa: PLC0415 - no other stack should pay for it

    try:
        args = kubernetes_runners.KubernetesRunnersArgs(
            config=runners,
            ports=plan.config.ports,
            mirrored=plan.config.mirrors.image,
            authority=plan.config.mirrors.ca_certificate or "",
            reservations=_node_reservations(runners),
        )
        return kubernetes_runners.KubernetesRunners("runners", args)
    except Unreadable as error:
        raise pulumi.RunError(f"slipway:runners.github.app.{error}") from None


def _node_reservations(runners: kubernetes.KubernetesRunnersConfig) -> Mapping[str, str]:
    if not any(own.reservation for own in runners.all_sets):
        return {}
    from components.runners.ec2 import reservation_lookup  # noqa: PLC0415 - as above

    try:
        return reservation_lookup.of_nodes(runners)
    except SlipwayError as error:
        raise pulumi.RunError(str(error)) from None


def _validated(
    placement: Placement,
    cluster: KubernetesRunners,
    variants: Mapping[str, ImageVariant | ImageIndex],
    registry: Registry,
) -> dict[str, Any]:
    validation = placement.validation
    if validation is None:
        return {}
    variant = variants[validation.variant] if validation.variant else None
    # Only a lasting login: the tokens of ECR and Azure would change at each update.
    private = (registry.server, registry.login([])) if validation.private and registry.lasts else None
    image, after = (variant.ref, [variant]) if variant else (validation.reference, [])
    return {"validation": cluster.validate(image, after, placement.plan.gpu_checks, private)}


def _machines(plan: Plan, runners: ec2.Ec2RunnersConfig) -> Deployed:
    from components.runners.ec2.ec2_deployment import deploy as deploy_runners  # noqa: PLC0415 - as above

    return deploy_runners(plan, runners)
