"""``python -m stacks verify``: that what a stack has published is signed, and stands on parents that are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stacks import cosign, plan, provenance
from stacks.diff import published
from stacks.errors import SlipwayError, one_line, suggest
from stacks.registry import Login, Repository
from stacks.signing import Signing


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
    outputs = published.outputs(stack, root)
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
    login = published.configured_login(planned)
    for name, ref in pushed.items():
        if image in {None, name}:
            yield f"{name}: {ref}"
            if name not in products:
                yield from _image(ref, signing, login)
            elif Repository(ref, login).exists():
                yield _signature(ref, signing, login)
            else:
                yield "  deleted     from the registry, which no image needs; it is built anew where it is needed again"
    if image is None:
        for ref, signer in planned.signers.items():
            cosign.verify(ref, signer, None)
            yield f"parent: {ref}"
            yield f"  signature   {signer.who}"


def _signature(ref: str, signing: Signing, login: Login | None) -> str:
    cosign.verify(ref, signing, login)
    return f"  signature   {signing.who}"


def _image(ref: str, signing: Signing, login: Login | None) -> Iterator[str]:
    yield _signature(ref, signing, login)
    if signing.sbom:
        found = cosign.attested(ref, "sbom", signing, login)
        yield f"  sbom        {len(found.get('packages', []))} packages"
    if signing.provenance:
        yield from _origin(cosign.attested(ref, "provenance", signing, login))


def _origin(said: Mapping[str, Any]) -> Iterator[str]:
    origin = provenance.summary(said)
    source = " at ".join(filter(None, (origin["source"], origin["revision"][:12]))) or "no known source"
    changed = (
        ", with changes that are in no commit" if said["buildDefinition"]["internalParameters"]["uncommitted"] else ""
    )
    yield f"  provenance  {source}{changed}, built {origin['date'] or 'at no known time'}"
    for parent in said["buildDefinition"]["resolvedDependencies"]:
        if parent["uri"].startswith("pkg:docker/"):
            digest = parent.get("digest", {}).get("sha256")
            name = parent["uri"].removeprefix("pkg:docker/").partition("?")[0]
            yield f"              on {name}{'' if digest else ', by tag only'}"
