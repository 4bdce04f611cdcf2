"""Checks before the first build: credentials to push, programs that sign and verify, and the platforms of parents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from containers.errors import SlipwayError, one_line
from containers.registry.logins import stack_login
from containers.registry.reference import Reference, on_loopback
from stacks.plan import Plan
from stacks.spec import Outside

_USUAL: Final = "linux/amd64"


def check(plan: Plan) -> None:
    """Check that the images of a plan can be pushed and signed, their parents verified, and its scale sets made.

    Parents must have the platforms of their images: an engine would build on a parent for another platform without a
    word. A stack for linux/amd64 alone is not checked, as nearly all parents have that one, and registries count
    requests.

    Raises SlipwayError: credentials, a program or a key is missing, a parent of another stack is not published, a
    parent lacks a platform, or a scale set of the runners is being deleted, or not prepared for another release of ARC;
    one line for each.
    """
    signing = plan.config.signing if plan.config.publish else None
    if plan.config.publish:
        stack_login.check(plan.config.registry)
        _check_encryption(plan)
    if plan.config.vulnerabilities:
        from containers.evidence.vulnerabilities import grype  # noqa: PLC0415 - other stacks start faster without it

        grype.check()
    if signing or plan.signers:
        from containers.evidence import cosign  # noqa: PLC0415 - other stacks start faster without it

        cosign.check(signing)
    if runners := plan.config.cluster_runners:
        from components.runners.kubernetes import cluster_health  # noqa: PLC0415 - as above

        if refusals := cluster_health.refusals(runners):
            raise SlipwayError("\n".join(refusals))
    if mistakes := list(_unpublished(plan)):
        raise SlipwayError("\n".join(mistakes))
    if plan.config.every_platform != (_USUAL,) and (mistakes := list(_lacking(plan))):
        raise SlipwayError("\n".join(mistakes))


def _check_encryption(plan: Plan) -> None:
    """Refuse a registry that this process cannot read after hours of a build, when the engine has pushed there.

    The engine may push by plain HTTP to what its `insecure-registries` lists. Gates, tags and layers of zstd are
    Slipway's own requests. Registries of clouds have HTTPS, and one on loopback needs none.

    Raises SlipwayError: the registry has no HTTPS that this machine trusts.
    """
    registry = plan.config.registry
    host = Reference(registry.repository).host
    if registry.kind not in {"generic", "local"} or on_loopback(host):
        return
    from containers.registry.client import Repository  # noqa: PLC0415 - other stacks start faster without it
    from containers.registry.transport import RegistryUnreachable, Untrusted  # noqa: PLC0415 - as above

    try:
        Repository(f"{registry.repository}/any:any", stack_login.configured(registry)).visible_digest()
    except Untrusted as error:
        reason = one_line(str(error).partition(" failed: ")[2])
        raise SlipwayError(
            f"slipway:registry: {host} has no HTTPS that this machine trusts ({reason}); Slipway tags and inspects "
            "images there itself, and takes plain HTTP on loopback alone: serve it over TLS, with a certificate that "
            "this machine trusts, or name a tunnel to it, such as 127.0.0.1:5000"
        ) from None
    except RegistryUnreachable:
        return  # only the engine may reach it


def _unpublished(plan: Plan) -> Iterator[str]:
    """Yield a line for each parent of another stack that its registry does not have."""
    if not plan.others:
        return
    from containers.registry.client import Repository  # noqa: PLC0415 - other stacks start faster without it
    from containers.registry.transport import RegistryUnreachable  # noqa: PLC0415 - as above

    for reference, parent in plan.others.items():
        try:
            published = Repository(reference, stack_login.configured(plan.config.registry)).visible_digest()
        except RegistryUnreachable:  # only the engine may reach it
            continue
        if not published:
            yield (
                f"{parent.reference}: {reference} is not in the registry, as stack {parent.stack} would publish it: "
                f"run `slipway up {parent.stack}` first"
            )


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
