"""Checks before the first build: credentials to push, programs that sign and verify, and the platforms of parents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from containers.errors import SlipwayError
from containers.registry.logins import stack_login
from stacks.plan import Plan
from stacks.spec import Outside

_USUAL: Final = "linux/amd64"


def check(plan: Plan) -> None:
    """Check that the images of a plan can be pushed and signed, and their parents verified.

    Parents must have the platforms of their images: an engine would build on a parent for another platform without a
    word. A stack for linux/amd64 alone is not checked, as nearly all parents have that one, and registries count
    requests.

    Raises:
        SlipwayError: credentials, a program or a key is missing, or a parent lacks a platform; one line for each.
    """
    signing = plan.config.signing if plan.config.publish else None
    if plan.config.publish:
        stack_login.check(plan.config.registry)
    if plan.config.vulnerabilities:
        from containers.evidence.vulnerabilities import grype  # noqa: PLC0415 - other stacks start faster without it

        grype.check()
    if signing or plan.signers:
        from containers.evidence import cosign  # noqa: PLC0415 - other stacks start faster without it

        cosign.check(signing)
    if plan.config.every_platform != (_USUAL,) and (mistakes := list(_lacking(plan))):
        raise SlipwayError("\n".join(mistakes))


def _lacking(plan: Plan) -> Iterator[str]:
    """Yield a line for each outside parent without a platform of the images built on it."""
    from containers.image import registry_image  # noqa: PLC0415 - other stacks start faster without it
    from containers.registry.transport import RegistryUnreachable  # noqa: PLC0415 - as above

    needed: dict[str, dict[str, None]] = {}
    for image in plan.images:
        for argument, parent in image.content.parents.items():
            if isinstance(parent, Outside) and parent.reference != "scratch":
                needed.setdefault(image.args[argument], {})[image.spec.platform] = None
    login = stack_login.configured(plan.config.registry)
    for reference, platforms in needed.items():
        try:
            present = registry_image.platforms(reference, login)
        except RegistryUnreachable:  # only the engine may reach it
            continue
        if lacking := [platform for platform in platforms if platform not in present]:
            key = "take {} out of slipway:platforms" if plan.config.platforms else "another slipway:platform"
            yield (
                f"{reference}: no image for {', '.join(lacking)}; it has: {', '.join(present) or 'none'}; give another "
                f"parent, or {key.format(', '.join(lacking))}"
            )
