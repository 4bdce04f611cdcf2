"""Products of a stack that pushes nothing: each engine that builds on one builds it itself.

What is the same for all platforms, such as a source, is one image, which other engines pull from the registry. An image
that is not pushed stays in the engine that built it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stacks.config.stack_config import StackConfig
from stacks.config.values import architecture
from stacks.identity.content import Content
from stacks.plan import Plan, PlannedImage
from stacks.spec import Sibling


def with_kept_products(plan: Plan) -> Plan:
    """Return a plan that pushes nothing with each shared product once for each engine that builds on it.

    The name of one for a further engine ends in its platform's architecture: ``torch-source-arm64``. Another plan is
    returned as it is.
    """
    if plan.config.publish or len({_engine(plan.config, image.spec.platform) for image in plan.images}) == 1:
        return plan
    planned = {image.spec.name: image for image in plan.images}
    images: dict[str, PlannedImage] = {}

    def add(image: PlannedImage, name: str, platform: str) -> None:
        names = {image.spec.name: name}
        for sibling in image.spec.siblings:
            shared = _engine(plan.config, planned[sibling].spec.platform) != _engine(plan.config, platform)
            names[sibling] = f"{sibling}-{architecture(platform)}" if shared else sibling
            if names[sibling] not in images:
                add(planned[sibling], names[sibling], platform if shared else planned[sibling].spec.platform)
        images[name] = replace(image, content=_renamed(image.content, names, platform))

    for image in plan.images:
        if image.spec.name not in images:
            add(image, image.spec.name, image.spec.platform)
    return replace(plan, images=tuple(images.values()))


def _renamed(content: Content, names: Mapping[str, str], platform: str) -> Content:
    """Return the content of an image with other names of itself and its siblings, for a platform."""
    parents = {
        argument: Sibling(image=names.get(parent.image, parent.image)) if isinstance(parent, Sibling) else parent
        for argument, parent in content.spec.parents.items()
    }
    spec, name = content.spec, names[content.spec.name]
    repository = spec.repository if name == spec.name else spec.published_name
    update = {"name": name, "repository": repository, "platform": platform, "parents": parents}
    checks = content.checks and _renamed(content.checks, names, platform)
    return replace(content, spec=spec.model_copy(update=update), checks=checks)


def _engine(config: StackConfig, platform: str) -> tuple[str, ...]:
    """Return what is built on: engines that the configuration names, a builder of a platform, or the default one."""
    if platform in config.engines:
        return config.engines[platform]
    build = config.runners.build if config.runners and config.build_on == "runners" else None
    return (platform,) if build and platform in build.platforms else ()
