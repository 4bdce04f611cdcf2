"""Copies of products in a stack that pushes nothing: each engine that builds on one builds it itself.

Platform-independent products, such as sources, are built once, and other engines pull them from the registry. An image
that is not pushed stays in its engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from containers.platform_name import architecture
from stacks.config.stack_config import StackConfig
from stacks.identity.content import Content
from stacks.plan import Plan, PlannedImage
from stacks.spec import Sibling

Identity = tuple[str, ...]
"""Distinguishes an engine from the others of a stack."""


def with_copies(plan: Plan) -> Plan:
    """Return a plan without pushes, with each shared product once for each engine that builds on it.

    The one on its own engine keeps its name. If nothing there is made of it, it moves to the engine of what is. The
    name of one for a further engine ends in its platform's architecture: ``torch-source-arm64``. Another plan is
    returned as it is.
    """
    if plan.config.publish or len({_engine(plan.config, image.spec.platform) for image in plan.images}) <= 1:
        return plan
    places = _places(plan)

    def built(image: PlannedImage, engine: Identity) -> PlannedImage:
        names = {
            name: name if engine == next(iter(places[name])) else f"{name}-{architecture(places[name][engine])}"
            for name in (image.spec.name, *_made_of(image))
        }
        return replace(image, content=_renamed(image.content, names, places[image.spec.name][engine]))

    return replace(
        plan, images=tuple(built(image, engine) for image in plan.images for engine in places[image.spec.name])
    )


def _places(plan: Plan) -> dict[str, dict[Identity, str]]:
    """Return by image its engines, each with the image's platform there.

    The image has its own name on the first of them.
    """
    places: dict[str, dict[Identity, str]] = {image.spec.name: {} for image in plan.images}
    for image in reversed(plan.images):  # the images made from an image come first: they say its place
        spec, needed = image.spec, places[image.spec.name]
        own = _engine(plan.config, spec.platform)
        if own in needed or not needed:
            places[spec.name] = {own: spec.platform, **{key: value for key, value in needed.items() if key != own}}
        for parent in _made_of(image):
            places[parent] = {**places[spec.name], **places[parent]}
    return places


def _made_of(image: PlannedImage) -> set[str]:
    """Return the names of the images that the build of an image, or of its checks, reads."""
    checks = image.content.checks
    return {*image.siblings.values(), *(checks.siblings.values() if checks else ())} - {image.spec.name}


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


def _engine(config: StackConfig, platform: str) -> Identity:
    """Return what is built on: engines that the configuration names, a builder of a platform, or the default one.

    Platforms with one list of several engines need not share one: each platform's pool chooses its own.
    """
    if platform in config.engines:
        engines = config.engines[platform]
        return engines if len(engines) == 1 else (platform, *engines)
    build = config.runners and config.runners.build  # platforms are refused where nothing is built there
    return (platform,) if build and platform in build.platforms else ()
