"""A plan's components: its registry, its images in order, and what the stack exports."""

from __future__ import annotations

from typing import Any

from components.image import ImageVariant, ImageVariantArgs
from components.registry import LocalRegistry, PasswordRegistry, Registry
from stacks.config import LocalRegistry as LocalConfig
from stacks.plan import Plan, PlannedImage
from stacks.spec import CONTEXT


def deploy(plan: Plan) -> dict[str, Any]:
    """Declare everything a plan asks for and return the stack's outputs.

    ``images`` maps each image to its ``ref``, ``digest`` and ``tag``. ``plan`` says what each is made of, all
    of it known at preview.
    """
    registry = _registry(plan)
    variants: dict[str, ImageVariant] = {}
    for image in plan.images:
        variants[image.spec.name] = ImageVariant(image.spec.name, _arguments(image, registry, variants))
    return {
        "images": {
            name: {"ref": variant.ref, "digest": variant.digest, "tag": variant.tag}
            for name, variant in variants.items()
        },
        "plan": {name: variant.plan for name, variant in variants.items()},
    }


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
        parents={argument: variants[parent] for argument, parent in image.siblings.items()},
    )
