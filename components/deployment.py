"""A plan's components: its registry, its images in order, and what the stack exports."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pulumi
import pulumi_docker as docker

from components import engines
from components.build_secrets import BuildSecrets
from components.engines.kept_products import with_kept_products
from components.engines.reached_engine import ReachedEngine
from components.image import ImageVariant, ImageVariantArgs
from components.registry.interface import Registry
from stacks.config import ec2, kubernetes
from stacks.config.builders import taking
from stacks.config.values import architecture
from stacks.differences import file_list
from stacks.plan import Plan, PlannedImage
from stacks.references import qualified

if TYPE_CHECKING:
    from components.engines.replicas import Replicas
    from components.runners.ec2.ec2_deployment import Deployed
    from components.runners.kubernetes.kubernetes_runners import KubernetesRunners
    from components.supply_chain.image_index import ImageIndex


class Builder(NamedTuple):
    """An engine of the runners that builds a platform's images, and how this machine reaches what it built."""

    engine: docker.Provider
    reached: ReachedEngine


def deploy(plan: Plan, replicas: Mapping[str, Replicas] | None = None) -> dict[str, Any]:
    """Declare all resources of a plan and return the stack's outputs.

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
    of_stack, plan = plan, with_kept_products(plan)
    secrets = BuildSecrets.of(plan.config)
    registry = _registry(plan)
    cluster = _cluster(plan)
    machines = _machines(plan)
    on_runners = plan.config.build_on == "runners"
    builders: dict[str, Builder] = {}
    if cluster and on_runners:
        builders = _of_cluster(plan, cluster, replicas or {})
    elif machines and on_runners:
        builders = _of_machines(plan, machines)
    by_platform = _engines(plan, builders)
    for providers in by_platform.values():
        secrets.lend(providers[0] if providers else None)
    verified = _supply_chain().verified(plan, registry) if plan.signers else {}
    variants: dict[str, ImageVariant] = {}
    for image in plan.images:
        name = image.spec.name
        # A component that depends on its parents' components is listed after them.
        parents = [variants[parent] for parent in image.siblings.values()]
        options = pulumi.ResourceOptions(depends_on=[registry, *parents], providers=by_platform[image.spec.platform])
        args = _variant_args(plan, image, registry, variants, verified, _reached(builders, image))
        variants[name] = ImageVariant(name, args, options)
        if not image.spec.is_part:
            registry.keep(name, variants[name].ref, variants[name])
    indexes = _indexes(plan, registry, variants) if plan.config.publish else {}
    if machines and on_runners:
        _stop(plan, machines, variants)
    outputs = _image_outputs(of_stack, variants, indexes)
    if cluster:
        outputs["runners"] = {**cluster.outputs, **_validated(plan, cluster, {**variants, **indexes}, registry)}
    if machines:
        outputs["runners"] = machines.outputs
    if plan.config.publish and (plan.config.signing or plan.config.extra_tags):
        outputs |= _supply_chain().after_push(plan, registry, variants, indexes)
    if verified:
        outputs["verifiedParents"] = {ref: parent.by for ref, parent in verified.items()}
    return outputs | _plan_outputs(of_stack)


def _of_machines(plan: Plan, machines: Deployed) -> dict[str, Builder]:
    """Declare the builders on EC2 as engines by platform, each on before the first of its images."""
    builders: dict[str, Builder] = {}
    for platform, builder in machines.builders.items():
        images = _images_of(plan, machines, platform)
        engine = builder.engine({image.spec.name: image.tag for image in images} | _tried(plan, images))
        builders[platform] = Builder(engine, builder.reached_engine)
    return builders


def _stop(plan: Plan, machines: Deployed, variants: Mapping[str, ImageVariant]) -> None:
    """Stop each builder on EC2 after the last of its images."""
    for platform, builder in machines.builders.items():
        images = _images_of(plan, machines, platform)
        built = {image.spec.name: variants[image.spec.name] for image in images}
        digests = {name: pulumi.Output.concat(variant.tag, "@", variant.digest) for name, variant in built.items()}
        builder.stop_after({**digests, **_tried(plan, images)}, list(built.values()))


def _images_of(plan: Plan, machines: Deployed, platform: str) -> list[PlannedImage]:
    """Return the images that a platform's builder on EC2 builds: a change of the others leaves it off."""
    return [
        image
        for image in plan.images
        if image.spec.platform not in plan.config.engines and platform == taking(machines.builders, image.spec.platform)
    ]


def _tried(plan: Plan, images: Sequence[PlannedImage]) -> dict[str, str]:
    """Return what a builder does with its images that are built, by a name: it is on when that changes.

    That is what their checks are made of, and whether those that are not pushed go through gates.
    """
    checks = {image.spec.name: image.content.checks for image in images}
    tried = {f"{name}-checks": content.folder for name, content in checks.items() if content}
    if plan.config.publish or not (plan.config.inspection.gate or plan.config.vulnerabilities):
        return tried
    kept = [image.spec.name for image in images if image.content.checks and not image.spec.product]
    return tried | {f"{name}-inspection": "saved" for name in kept}


def _of_cluster(plan: Plan, cluster: KubernetesRunners, replicas: Mapping[str, Replicas]) -> dict[str, Builder]:
    """Declare the engines of a cluster's build service by platform, that of the runners first."""
    builders: dict[str, Builder] = {}
    for platform in cluster.platforms:
        shared = engines.address(plan.stack, platform)
        engine = cluster.engine(platform, shared, replicas.get(platform))
        builders[platform] = Builder(engine, cluster.reached_engine(platform, shared))
    return builders


def _reached(builders: Mapping[str, Builder], image: PlannedImage) -> ReachedEngine:
    """Return how this machine reaches the engine of an image."""
    return builders[taking(builders, image.spec.platform)].reached if builders else ReachedEngine()


def _engines(plan: Plan, builders: Mapping[str, Builder]) -> dict[str, list[pulumi.ProviderResource]]:
    """Declare the engines by platform: configured ones, and those of a stack for several platforms.

    Each platform has a provider of its own from the first update on, because an image that moves between providers is
    replaced. Which engines there are does not show in it.
    """
    config = plan.config
    platforms = config.platforms if plan.indexes else (config.platform,)
    own = [platform for platform in platforms if platform in config.engines or (plan.indexes and not builders)]
    of_runners: dict[str, list[pulumi.ProviderResource]] = {key: [builder.engine] for key, builder in builders.items()}
    # What is the same for all platforms, such as a source, is built for one that the stack may not have.
    default = next(iter(of_runners.values()), [])
    return (
        dict.fromkeys((image.spec.platform for image in plan.images), default)
        | of_runners
        | {
            platform: [
                docker.Provider(
                    f"engine-{architecture(platform)}",
                    host=engines.address(plan.stack, platform) if platform in config.engines else None,
                    disable_docker_daemon_check=True,
                )
            ]
            for platform in own
        }
    )


def _indexes(plan: Plan, registry: Registry, variants: Mapping[str, ImageVariant]) -> dict[str, ImageIndex]:
    """Declare the index of each image that has several platforms; it waits for all of them."""
    indexes: dict[str, ImageIndex] = {}
    for name, images in plan.indexes.items():
        from components.supply_chain.image_index import ImageIndex, ImageIndexArgs  # noqa: PLC0415 - few stacks have one

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
    """Declare the registry by the module of its kind: few stacks need what ECR's imports."""
    module = importlib.import_module(f"components.registry.{plan.config.registry.kind}_registry")
    registry: Registry = module.declare(plan)
    return registry


def _cluster(plan: Plan) -> KubernetesRunners | None:
    """Declare the runners of a cluster, before the images: these may be built there."""
    config = plan.config
    if not isinstance(config.runners, kubernetes.KubernetesRunners):
        return None
    from components.runners.kubernetes import kubernetes_runners  # noqa: PLC0415 - no other stack should pay for it

    args = kubernetes_runners.KubernetesRunnersArgs(
        config=config.runners, ports=config.ports, mirrored=config.mirrors.image
    )
    return kubernetes_runners.KubernetesRunners("runners", args)


def _validated(
    plan: Plan,
    cluster: KubernetesRunners,
    variants: Mapping[str, ImageVariant | ImageIndex],
    registry: Registry,
) -> dict[str, Any]:
    runners = plan.config.runners
    validation = runners.validation if isinstance(runners, kubernetes.KubernetesRunners) else None
    if validation is None:
        return {}
    variant = variants.get(validation.image)
    reference = plan.config.mirrors.image(validation.image)
    image, after = (variant.ref, [variant]) if variant else (reference, [])
    server = registry.server if variant else qualified(reference).partition("/")[0]
    # Only a lasting login: the tokens of ECR and Azure would change at each update.
    private = (server, registry.login([])) if server == registry.server and registry.lasts else None
    return {"validation": cluster.validate(image, after, plan.gpu_checks, private)}


def _machines(plan: Plan) -> Deployed | None:
    """Declare the runners on EC2, before the images: a mistake that only AWS knows ends the update before a build."""
    config = plan.config.runners
    if not isinstance(config, ec2.Ec2Runners):
        return None
    from components.runners.ec2.ec2_deployment import deploy as deploy_runners  # noqa: PLC0415 - as above

    return deploy_runners(plan, config)


def _variant_args(
    plan: Plan,
    image: PlannedImage,
    registry: Registry,
    variants: dict[str, ImageVariant],
    verified: Mapping[str, pulumi.Resource],
    reached: ReachedEngine,
) -> ImageVariantArgs:
    siblings = [*image.siblings.values(), *(image.content.checks.siblings.values() if image.content.checks else ())]
    platform = image.spec.platform
    named = platform in plan.config.engines
    reached_from_here = plan.config.build_on == "engine" or plan.config.signing or image.content.checks
    return ImageVariantArgs(
        image=image,
        registry=registry,
        # A remote engine may reach a registry that this machine does not. Signatures and checked tags are made here.
        needed=plan.config.publish and bool(reached_from_here),
        signer=plan.config.signing,
        trusted=plan.config.registry.trusted or plan.config.trust_registry,
        inspection=plan.config.inspection,
        vulnerabilities=plan.config.vulnerabilities,
        engine=ReachedEngine(engines.address(plan.stack, platform)) if named else reached,
        parents={sibling: variants[sibling] for sibling in siblings if sibling in variants},
        after=[verified[value] for value in image.args.values() if value in verified],
    )
