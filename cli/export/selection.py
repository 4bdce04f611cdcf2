"""The images of a stack that an export reads from its registry."""

from __future__ import annotations

from typing import Final

from containers.errors import SlipwayError
from containers.image.registry_image import Image, fetch
from containers.registry.client import Repository
from containers.registry.logins import stack_login
from stacks.plan import Plan, PlannedImage

_WITH_WHEELS: Final = {"wheel", "dist"}
"""Targets of the products that hold wheels; a stack's images use others too, such as the tools of nccl-tests."""


def image(plan: Plan, name: str | None, platform: str | None = None) -> Image:
    """Return one of a stack's images; without a name, the last one. A stack for several platforms needs one.

    Raises SlipwayError: the stack builds no such image, it is not pushed, or the registry fails.
    """
    return _pushed(plan, plan.image(name, platform))


def wheels(plan: Plan, name: str | None, platform: str | None = None) -> list[Image]:
    """Return the images with a stack's wheels: the named one, else all products with wheels that its images install.

    They are of one platform. For a stack of build products only (``train: []``), they are those that no other image
    uses.

    Raises SlipwayError: the stack builds no wheels, one image is not pushed, or the registry fails.
    """
    if name:
        return [_pushed(plan, plan.image(name, platform))]
    platforms = plan.config.every_platform
    if platform not in {*platforms, None} or (platform is None and len(platforms) > 1):
        raise SlipwayError(f"stack {plan.stack} is for {' and '.join(platforms)}: choose one with --platform")
    images = [each for each in plan.images if platform in {None, each.spec.platform}]
    runnable = [each for each in images if not each.spec.product]
    mounted = {parent for each in runnable or images for parent in each.spec.siblings}
    with_wheels = [each for each in images if each.spec.product and each.spec.target in _WITH_WHEELS]
    products = [each for each in with_wheels if (each.spec.name in mounted) == bool(runnable)]
    if not products:
        raise SlipwayError(f"stack {plan.stack} builds no wheels; it installs published ones")
    return [_pushed(plan, each) for each in products]


def _pushed(plan: Plan, planned: PlannedImage) -> Image:
    where = f"stack {plan.stack}: {planned.spec.name}"
    if not plan.config.publish:
        raise SlipwayError(f"{where}: not pushed, because of slipway:publish: false")
    login = stack_login.configured(plan.config.registry)
    if not Repository(planned.reference, login).exists():
        raise SlipwayError(
            f"{where}: {planned.reference} is not in the registry; `slipway up {plan.stack}` builds and pushes it, "
            "or name an older image by its reference"
        )
    return fetch(planned.reference, login, planned.spec.platform)
