"""A plan's components: its registry, its images in order, and what the stack exports."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pulumi

from components.image import ImageVariant, ImageVariantArgs
from components.registry import aws_environment
from components.registry.interface import (
    AcrRegistry,
    GenericRegistry,
    GhcrRegistry,
    LocalRegistry,
    PasswordRegistry,
    PasswordRegistryArgs,
    Registry,
    RegistryArgs,
)
from oci import credentials
from stacks.config import ec2, kubernetes, registries
from stacks.plan import Plan, PlannedImage
from stacks.references import qualified
from stacks.spec import CONTEXT

if TYPE_CHECKING:
    from components.runners.ec2.ec2_deployment import Deployed
    from components.runners.kubernetes.kubernetes_runners import KubernetesRunners


def deploy(plan: Plan) -> dict[str, Any]:
    """Declare everything a plan asks for and return the stack's outputs.

    ``images`` maps each image to its ``ref``, ``digest`` and ``tag``, ``products`` likewise what they are built from
    (sources, wheels). ``plan`` says what each is made of, and ``planFiles`` maps each Dockerfile to its context's
    files; all of both is known at preview. ``runners`` says where the stack's runners are, and whether the GPU checks
    passed. Where the stack asks for them, ``signed`` has each image's signature, SBOM and provenance, and a product's
    signature, ``extraTags`` an image's further names, and ``verifiedParents`` who has signed what others publish.
    """
    registry = _registry(plan)
    cluster = _cluster(plan)
    machines = _machines(plan)
    # All images on one engine, whose layers they share.
    there = plan.config.build_on == "runners"
    builder = machines.builder if machines and there else None
    engine: list[pulumi.ProviderResource] = []
    if cluster and there:
        engine = [cluster.engine()]
    elif builder:
        engine = [builder.engine({image.spec.name: image.tag for image in plan.images})]
    verified = _supply_chain().verified(plan, registry) if plan.signers else {}
    variants: dict[str, ImageVariant] = {}
    files: dict[str, Any] = {}
    for image in plan.images:
        name = image.spec.name
        # A component that waits for its parents' is shown below them.
        parents = [variants[parent] for parent in image.siblings.values()]
        after = pulumi.ResourceOptions(depends_on=[registry, *parents], providers=engine)
        variants[name] = ImageVariant(name, _arguments(plan, image, registry, variants, verified), after)
        registry.keep(name, variants[name].ref, variants[name])
        files[image.spec.dockerfile] = variants[name].plan["files"]
    if builder:
        made = {name: pulumi.Output.concat(variant.tag, "@", variant.digest) for name, variant in variants.items()}
        builder.rest(made, list(variants.values()))
    built = {
        name: {"ref": variant.ref, "digest": variant.digest, "tag": variant.tag} for name, variant in variants.items()
    }
    products = {image.spec.name for image in plan.images if image.spec.product}
    outputs: dict[str, Any] = {"images": {name: built[name] for name in built if name not in products}}
    if products:
        outputs["products"] = {name: built[name] for name in built if name in products}
    if cluster:
        outputs["runners"] = {**cluster.outputs, **_validated(plan, cluster, variants, registry)}
    if machines:
        outputs["runners"] = machines.outputs
    plans = {
        name: {key: value for key, value in variant.plan.items() if key != "files"}
        for name, variant in variants.items()
    }
    if plan.config.publish and (plan.config.signing or plan.config.extra_tags):
        outputs |= _supply_chain().beside(plan, registry, variants)
    if verified:
        outputs["verifiedParents"] = {ref: parent.by for ref, parent in verified.items()}
    return {**outputs, "plan": plans, "planFiles": files}


def _supply_chain() -> ModuleType:
    from components.supply_chain import declare  # noqa: PLC0415 - it asks registries, and no other stack should pay for it

    return declare


def _registry(plan: Plan) -> Registry:
    config = plan.config.registry
    if isinstance(config, registries.EcrRegistry):
        return _ecr(plan, config)
    if isinstance(config, registries.LocalRegistry):
        return LocalRegistry("registry", RegistryArgs(repository=config.repository, publish=plan.config.publish))
    args = PasswordRegistryArgs(
        repository=config.repository,
        publish=plan.config.publish,
        username=config.username,
        password=config.password.get_secret_value() if config.password else None,
        asked=credentials.short_lived(config),
    )
    return _PASSWORD_KINDS[config.kind]("registry", args)


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
    plan: Plan, cluster: KubernetesRunners, variants: Mapping[str, ImageVariant], registry: Registry
) -> dict[str, Any]:
    config = plan.config.runners
    asked = config.validation if isinstance(config, kubernetes.KubernetesRunners) else None
    if asked is None:
        return {}
    own = variants.get(asked.image)
    reference = plan.config.mirrors.image(asked.image)
    image, after = (own.ref, [own]) if own else (reference, [])
    server = registry.server if own else qualified(reference).partition("/")[0]
    # One that lasts: ECR's, or one of Azure's that is asked for, would be another at each update.
    private = (server, registry.login([])) if server == registry.server and registry.lasts else None
    return {"validation": cluster.validate(image, after, plan.gpu_checks, private)}


_PASSWORD_KINDS: dict[str, type[PasswordRegistry]] = {
    "acr": AcrRegistry,
    "generic": GenericRegistry,
    "ghcr": GhcrRegistry,
}


def _ecr(plan: Plan, config: registries.EcrRegistry) -> Registry:
    from components.registry.ecr_registry import BESIDE, EcrRegistry, EcrRegistryArgs  # noqa: PLC0415 - no other stack should pay for it

    return EcrRegistry(
        "registry",
        EcrRegistryArgs(
            repository=config.repository,
            publish=plan.config.publish,
            account=config.account,
            region=config.region,
            stack=plan.stack,
            images=[image.spec.name for image in plan.images if not image.spec.product],
            products=[image.spec.name for image in plan.images if image.spec.product],
            create=config.create,
            keep_newest=config.keep_newest,
            kms_key=config.kms_key,
            force_delete=config.force_delete,
            caches={
                name: (prefix, config.pull_through_cache[name].credential) for name, prefix in config.prefixes.items()
            },
            signed=not pulumi.runtime.is_dry_run() or aws_environment.signed(),
            moving=[*([f"{BESIDE}*"] if plan.config.signing else []), *(f"*{tag}" for tag in plan.config.extra_tags)],
        ),
    )


def _machines(plan: Plan) -> Deployed | None:
    """Declare the runners on EC2, before the images: what AWS has not is told before anything is built."""
    config = plan.config.runners
    if not isinstance(config, ec2.Ec2Runners):
        return None
    from components.runners.ec2.ec2_deployment import deploy as deploy_runners  # noqa: PLC0415 - likewise

    return deploy_runners(plan, config)


def _arguments(
    plan: Plan,
    image: PlannedImage,
    registry: Registry,
    variants: dict[str, ImageVariant],
    verified: Mapping[str, pulumi.Resource],
) -> ImageVariantArgs:
    return ImageVariantArgs(
        repository=image.repository,
        tag=image.tag,
        context=CONTEXT,
        dockerfile=f"{CONTEXT}/{image.spec.dockerfile}",
        platform=image.spec.platform,
        args=image.args,
        labels=image.spec.label_args,
        files=image.files,
        registry=registry,
        target=image.spec.target,
        product=image.spec.product,
        # An engine elsewhere may reach a registry that this machine does not; who signs asks it from here.
        needed=plan.config.publish and (plan.config.build_on == "engine" or plan.config.signing is not None),
        signer=plan.config.signing if plan.config.publish else None,
        parents={argument: variants[parent] for argument, parent in image.siblings.items()},
        after=[verified[value] for value in image.args.values() if value in verified],
    )
