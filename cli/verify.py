"""``slipway verify``: the signatures of a stack's published images and of their parents."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.diff import stack_diff
from oci import cosign, credentials, slsa
from oci.client import Repository
from oci.credentials import Login
from stacks import plan
from stacks.config.signing import Signer, Signing, trusted
from stacks.config.stack_config import StackConfig
from stacks.errors import SlipwayError, one_line, suggest
from stacks.references import qualified, split


def lines(stack: str, root: Path, image: str | None = None) -> Iterator[str]:
    """Verify the last published images of a stack, or one of them, and yield a line for each result.

    Raises:
        SlipwayError: there is no such stack or image, the stack does not sign or has published nothing, or a required
            signature is missing.
    """
    planned = plan.make(stack, root=root)
    signing = planned.config.signing
    if signing is None:
        raise SlipwayError(f"stack {stack}: slipway:signing is not set, so there are no signatures")
    outputs = stack_diff.outputs(stack, root)
    products: Mapping[str, Mapping[str, str]] = outputs.get("products", {})
    published: Mapping[str, Mapping[str, str]] = {**outputs.get("images", {}), **products}
    pushed = {name: built["ref"] for name, built in published.items() if "@" in built["ref"]}
    if not pushed:
        raise SlipwayError(f"stack {stack} has published nothing yet: `make up STACK={stack}`")
    if image is not None and image not in pushed:
        raise SlipwayError(
            f"stack {stack} has published no image '{one_line(image)}'{suggest(image, pushed)}; "
            f"it has: {', '.join(pushed)}"
        )
    login = credentials.configured(planned.config.registry)
    # Without provenance, the parents are those of the present configuration and lock.
    parents = {} if signing.provenance or image else planned.signers
    for name, ref in pushed.items():
        if image in {None, name}:
            yield f"{name}: {ref}"
            if name not in products:
                parents |= yield from _image(ref, signing, planned.config, login)
            elif Repository(ref, login).exists():
                yield _signature(ref, signing, login)
            else:
                yield "  deleted     from the registry; no image needs it, and the next build that does builds it again"
    siblings = {split(qualified(ref))[0] for ref in pushed.values()}  # at any digest: one may be older
    for ref, signer in parents.items():
        if split(qualified(ref))[0] not in siblings:
            yield f"parent: {ref}"
            yield _signature(ref, signer, login)


def _signature(ref: str, signer: Signer, login: Login | None) -> str:
    if _digest(ref):
        cosign.verify(ref, signer, login if login and login.applies_to(ref) else None)
        return f"  signature   {signer.who}"
    raise SlipwayError(f"{ref}: the image is built on its tag, which may have moved since; lock it, and publish again")


def _image(
    ref: str, signing: Signing, config: StackConfig, login: Login | None
) -> Generator[str, None, dict[str, Signer]]:
    """Yield the results for an image; return the required signers by parent."""
    yield _signature(ref, signing, login)
    if signing.sbom:
        sbom = cosign.attested(ref, "sbom", signing, login)
        yield f"  sbom        {len(sbom.get('packages', []))} packages"
    if not signing.provenance:
        return {}
    provenance = cosign.attested(ref, "provenance", signing, login)
    yield from _origin(provenance)
    signers = {parent: _trusted(parent, config) for parent in slsa.parents(provenance)}
    return {parent: signer for parent, signer in signers.items() if signer}


def _digest(ref: str) -> bool:
    return "@sha256:" in ref


def _trusted(parent: str, config: StackConfig) -> Signer | None:
    return next(filter(None, (trusted(config.trust, name) for name in config.public(parent))), None)


def _origin(provenance: Mapping[str, Any]) -> Iterator[str]:
    origin = slsa.summary(provenance)
    source = " at ".join(filter(None, (origin["source"], origin["revision"][:12]))) or "unknown source"
    uncommitted = provenance["buildDefinition"]["internalParameters"]["uncommitted"]
    changed = ", with uncommitted changes" if uncommitted else ""
    yield f"  provenance  {source}{changed}, built {origin['date'] or 'at an unknown time'}"
    for parent in slsa.parents(provenance):
        yield f"              on {parent}{'' if _digest(parent) else ', by tag only'}"
