"""A plan's components: its registry, its images in order, and what the stack exports."""

from __future__ import annotations

from typing import Any

import pulumi

from components.image import ImageVariant, ImageVariantArgs
from components.registry import LocalRegistry, PasswordRegistry, Registry
from stacks.config import LocalRegistry as LocalConfig
from stacks.plan import Plan, PlannedImage
from stacks.spec import CONTEXT


def deploy(plan: Plan) -> dict[str, Any]:
    """Declare everything a plan asks for and return the stack's outputs.

    ``images`` maps each image to its ``ref``, ``digest`` and ``tag``, ``products`` likewise what they are built from
    (sources, wheels). ``plan`` says what each is made of, and ``planFiles`` maps each Dockerfile to its context's
    files; all of both is known at preview.
    """
    registry = _registry(plan)
    variants: dict[str, ImageVariant] = {}
    files: dict[str, Any] = {}
    for image in plan.images:
        name = image.spec.name
        # A component that waits for its parents' is shown below them.
        after = pulumi.ResourceOptions(depends_on=[variants[parent] for parent in image.siblings.values()])
        variants[name] = ImageVariant(name, _arguments(image, registry, variants), after)
        files[image.spec.dockerfile] = variants[name].plan["files"]
    built = {
        name: {"ref": variant.ref, "digest": variant.digest, "tag": variant.tag} for name, variant in variants.items()
    }
    products = {image.spec.name for image in plan.images if image.spec.product}
    outputs: dict[str, Any] = {"images": {name: built[name] for name in built if name not in products}}
    if products:
        outputs["products"] = {name: built[name] for name in built if name in products}
    plans = {
        name: {key: value for key, value in variant.plan.items() if key != "files"}
        for name, variant in variants.items()
    }
    return {**outputs, "plan": plans, "planFiles": files}


def _registry(plan: Plan) -> Registry:
    config = plan.config.registry
    if isinstance(config, LocalConfig):
        return LocalRegistry("registry", config.repository, publish=plan.config.publish)
    return PasswordRegistry(
        "registry",
        config.repository,
        username=config.username,
        password=config.password.get_secret_value() if config.password else None,
        publish=plan.config.publish,
    )


def _arguments(image: PlannedImage, registry: Registry, variants: dict[str, ImageVariant]) -> ImageVariantArgs:
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
        parents={argument: variants[parent] for argument, parent in image.siblings.items()},
    )
