"""The images that an export reads: those that a stack stands for now, as its registry has them."""

from __future__ import annotations

from oci import credentials
from oci.client import Repository
from oci.registry_image import Image, fetch
from stacks.errors import SlipwayError
from stacks.plan import Plan, PlannedImage


def image(plan: Plan, name: str | None) -> Image:
    """Return one of a stack's images; without a name the one that stands on the others.

    Raises:
        SlipwayError: the stack builds no such image, it is not pushed, or the registry cannot be asked.
    """
    return _pushed(plan, plan.image(name))


def wheels(plan: Plan, name: str | None) -> list[Image]:
    """Return the images that hold a stack's wheels: the one that is named, else all products that its images install.

    Of a stack that has no image to run (``train: []``) they are those on which nothing stands.

    Raises:
        SlipwayError: the stack builds none, one is not pushed, or the registry cannot be asked.
    """
    if name:
        return [_pushed(plan, plan.image(name))]
    run = [each for each in plan.images if not each.spec.product]
    mounted = {parent for each in run or plan.images for parent in each.spec.siblings}
    found = [each for each in plan.images if each.spec.product and (each.spec.name in mounted) == bool(run)]
    if not found:
        raise SlipwayError(f"stack {plan.stack} builds no wheels; it installs published ones")
    return [_pushed(plan, each) for each in found]


def _pushed(plan: Plan, planned: PlannedImage) -> Image:
    where = f"stack {plan.stack}: {planned.spec.name}"
    if not plan.config.publish:
        raise SlipwayError(f"{where}: is in no registry, because of slipway:publish: false")
    login = credentials.configured(plan.config.registry)
    if not Repository(planned.reference, login).exists():
        raise SlipwayError(
            f"{where}: {planned.reference} is not in the registry; `make up STACK={plan.stack}` builds and pushes it, "
            "and an image that was pushed before can be named by its reference"
        )
    return fetch(planned.reference, login, planned.spec.platform)
