"""``slipway verify --digest``: an image of a stack that is not the last one, such as one with warm layers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cli import verify
from cli.promotion.published_image import published, published_with
from cli.verify import Verified
from cli.warm import warm_evidence, warm_image
from containers.errors import SlipwayError
from containers.image.registry_image import fetch_each


def verify_digest(stack: str, image: str, digest: str, root: Path) -> Iterator[Verified]:
    """Verify an image in a stack's repository by its digest, and yield it with the image below its warm layers.

    Of an index, its images are verified too.

    Raises SlipwayError: there is no such stack or image, the stack does not sign, a required signature or attestation
    is missing, or an image violates the policy.
    """
    target = published(stack, image, root, digest)
    images = fetch_each(target.ref, target.login)
    if len(images) == 1 and (below := warm_image.image_below(images[0])):
        ground, lower = published_with(target, below, root)
        signed = verify.signature(target.ref, target.signing, target.login, target.annotations)
        layers = warm_evidence.attested_layers(lower, images[0], target.signing, target.login)
        yield Verified(image, target.ref, (signed, *(("warm", each.summary) for each in layers)))
        target, images = ground, [lower]
    parts = dict(target.attested(each.digest, alone=len(images) == 1) for each in images)
    violations: list[str] = []
    for ref, stated in ({target.ref: target.annotations} | parts).items():
        facts = [verify.signature(ref, target.signing, target.login, stated)]
        if ref in parts:
            evidence = verify.Evidence(ref, target.signing, target.login, ())
            facts += evidence.facts()
            violations += evidence.violations(datetime.now(UTC))
        yield Verified(image, ref, tuple(facts))
    if violations:
        raise SlipwayError("\n".join(violations))
