"""``slipway verify``: that what a stack has published is signed, and stands on parents that are."""

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
    """Verify what a stack last published, or one image of it, and yield what is found, a line for each thing.

    Raises:
        SlipwayError: there is no such stack or image, nothing of it is signed or published, or something is not signed
            as its configuration says.
    """
    planned = plan.make(stack, root=root)
    signing = planned.config.signing
    if signing is None:
        raise SlipwayError(f"stack {stack}: slipway:signing is not set, so that nothing is signed")
    outputs = stack_diff.outputs(stack, root)
    products: Mapping[str, Mapping[str, str]] = outputs.get("products", {})
    there: Mapping[str, Mapping[str, str]] = {**outputs.get("images", {}), **products}
    pushed = {name: built["ref"] for name, built in there.items() if "@" in built["ref"]}
    if not pushed:
        raise SlipwayError(f"stack {stack} has published nothing yet: `make up STACK={stack}`")
    if image is not None and image not in pushed:
        raise SlipwayError(
            f"stack {stack} has published no image '{one_line(image)}'{suggest(image, pushed)}; "
            f"it has: {', '.join(pushed)}"
        )
    login = credentials.configured(planned.config.registry)
    # Without provenance nothing but today's configuration and lock say on what images stand.
    parents = {} if signing.provenance or image else planned.signers
    for name, ref in pushed.items():
        if image in {None, name}:
            yield f"{name}: {ref}"
            if name not in products:
                parents |= yield from _image(ref, signing, planned.config, login)
            elif Repository(ref, login).exists():
                yield _signature(ref, signing, login)
            else:
                yield "  deleted     from the registry, which no image needs; it is built anew where it is needed again"
    own = {split(qualified(ref))[0] for ref in pushed.values()}  # at whatever digest: of siblings one may be older
    for ref, signer in parents.items():
        if split(qualified(ref))[0] not in own:
            yield f"parent: {ref}"
            yield _signature(ref, signer, login)


def _signature(ref: str, signer: Signer, login: Login | None) -> str:
    if _digest(ref):
        cosign.verify(ref, signer, login if login and login.applies_to(ref) else None)
        return f"  signature   {signer.who}"
    raise SlipwayError(f"{ref}: built on by its tag only, and that may have moved since; lock it, and publish anew")


def _image(
    ref: str, signing: Signing, config: StackConfig, login: Login | None
) -> Generator[str, None, dict[str, Signer]]:
    """Yield what is found of an image; return whose signature the parents must have that it was built on."""
    yield _signature(ref, signing, login)
    if signing.sbom:
        found = cosign.attested(ref, "sbom", signing, login)
        yield f"  sbom        {len(found.get('packages', []))} packages"
    if not signing.provenance:
        return {}
    said = cosign.attested(ref, "provenance", signing, login)
    yield from _origin(said)
    signers = {parent: _trusted(parent, config) for parent in slsa.parents(said)}
    return {parent: signer for parent, signer in signers.items() if signer}


def _digest(ref: str) -> bool:
    return "@sha256:" in ref


def _trusted(parent: str, config: StackConfig) -> Signer | None:
    return next(filter(None, (trusted(config.trust, name) for name in config.public(parent))), None)


def _origin(said: Mapping[str, Any]) -> Iterator[str]:
    origin = slsa.summary(said)
    source = " at ".join(filter(None, (origin["source"], origin["revision"][:12]))) or "no known source"
    changed = (
        ", with changes that are in no commit" if said["buildDefinition"]["internalParameters"]["uncommitted"] else ""
    )
    yield f"  provenance  {source}{changed}, built {origin['date'] or 'at no known time'}"
    for parent in slsa.parents(said):
        yield f"              on {parent}{'' if _digest(parent) else ', by tag only'}"
