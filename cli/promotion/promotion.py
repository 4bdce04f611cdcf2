"""``slipway promote``: a tag moves to an image with verified evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cli import verify
from cli.promotion import newest_evidence
from cli.promotion.published_image import PublishedImage, published, published_with
from cli.warm import warm_evidence, warm_image
from containers.errors import SlipwayError, one_line, suggest
from containers.evidence import age, cosign, gpu_report, loading_evidence, shape
from containers.evidence.vulnerabilities import grype
from containers.evidence.vulnerabilities.verdict import judge
from containers.image.registry_image import Image, fetch_each
from containers.registry import client
from containers.registry.client import Repository
from stacks.config.gates.promotion_gate import GpuChecksConfig, PromotionConfig
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from stacks.config.stack_file import ROOT

_INSPECTED: Final = (
    "`slipway up` inspects images that have checks or are in slipway:images, unless slipway:inspection.gate is false; "
    "or set slipway:promotion.loading: false"
)


def promote(
    stack: str, image: str, tag: str, root: Path, digest: str | None = None, now: datetime | None = None
) -> Iterator[str]:
    """Move a tag to the last published image of a stack, or to the one with a ``digest``; yield what was done.

    Raises SlipwayError: the stack promotes no such tag; evidence is missing, old or says no, with a line for each, and
    the tag stays; the tag names a newer image and no digest is given; or somebody else moved the tag meanwhile.
    """
    now = now or datetime.now(UTC)
    target = published(stack, image, root, digest)
    promotion = target.config.promotion
    if promotion is None:
        raise SlipwayError(f"stack {stack}: slipway:promotion is not set, so no tag moves by `slipway promote`")
    if tag not in promotion.tags:
        raise SlipwayError(
            f"stack {stack}: '{one_line(tag)}' is no tag of slipway:promotion.tags{suggest(tag, promotion.tags)}; "
            f"they are: {', '.join(promotion.tags)}"
        )
    name = f"{target.repository}:{tag}"
    before = Repository(name, target.login).visible_digest()
    images = fetch_each(target.ref, target.login)
    if digest is None and before and before != target.digest:
        _check_newer(name, images, target)
    refused = _lines(_refused, target, images, promotion, root, now)
    if refused:
        stays = f"stays at {before}" if before else "is not set"
        raise SlipwayError("\n".join([f"{image}: {tag} {stays}:", *(f"  {each}" for each in dict.fromkeys(refused))]))
    if before == target.digest:
        yield f"{image}: {name} names {target.digest} already, and its evidence verifies"
        return
    _move(target, tag, before)
    yield f"{image}: {name} names {target.digest}; before: {before or 'nothing'}"


def _check_newer(name: str, images: Iterable[Image], target: PublishedImage) -> None:
    """Refuse to move a tag back without a digest: the state of this machine may be an old one.

    An image with warm layers is newer than the one below them, and says the same time.
    """
    before = fetch_each(name, target.login)
    if target.digest in map(warm_image.image_below, before):
        raise SlipwayError(
            f"{name}: names {target.digest} with warm layers; to take them off, give --digest {target.digest}"
        )
    tagged, planned = _created(before), _created(images)
    if tagged and planned and tagged > planned:
        raise SlipwayError(
            f"{name}: names an image built at {tagged}, after the one that the stack {target.stack} last published "
            f"({planned}); to go back to that, give --digest {target.digest}"
        )


def _created(images: Iterable[Image]) -> str:
    """Return when the last of some images was built, as their configurations say; empty if unknown."""
    times = []
    for image in images:
        config = image.repository.json(image.manifest.content["config"]["digest"], image.config_size)
        created = str(config.get("created") or "")
        if age.days(created, datetime.now(UTC)) is not None:
            times.append(datetime.fromisoformat(created).astimezone(UTC).isoformat())
    return max(times, default="")


def _refused(
    target: PublishedImage, images: Sequence[Image], promotion: PromotionConfig, root: Path, now: datetime
) -> Iterator[str]:
    """Yield a line for each thing that is missing or fails. Of warm layers, the image below has all other evidence.

    A first compiled step depends on them: where one is required, the GPU checks are those of the image with the layers.
    """
    checks, checked = promotion.gpu_checks, target
    below = warm_image.image_below(images[0]) if len(images) == 1 else ""
    if below:
        yield from _lines(_unsigned, target.ref, target, target.annotations)
        ground, image = published_with(target, below, root)
        yield from _lines(_warm, image, images[0], target)
        target, images = ground, [image]
        if checks and not checks.first_step:
            checked = ground
    yield from _lacking(target, images, promotion, now)
    if checks:
        yield from _lines(_gpu, checked, checks, promotion, root, now)


def _warm(image: Image, warm: Image, target: PublishedImage) -> tuple[()]:
    warm_evidence.attested_layers(image, warm, target.signing, target.login)
    return ()


def _lacking(
    target: PublishedImage, images: Sequence[Image], promotion: PromotionConfig, now: datetime
) -> Iterator[str]:
    """Yield a line for each thing but GPU checks that an image without warm layers lacks."""
    yield from _lines(_unsigned, target.ref, target, target.annotations)
    for ref, stated in dict(target.attested(image.digest, alone=len(images) == 1) for image in images).items():
        if ref != target.ref:
            yield from _lines(_unsigned, ref, target, stated)
        yield from _lines(_against_policy, ref, target, now)
        if promotion.loading:
            yield from _lines(_loading, ref, target, promotion, now)
        if target.config.vulnerabilities:
            yield from _lines(_vulnerable, ref, target, target.config.vulnerabilities, now)


def _lines(check: Callable[..., Iterable[str]], *arguments: Any) -> list[str]:
    """Return the lines of a check; one that cannot be made is a line, too."""
    try:
        return list(check(*arguments))
    except SlipwayError as error:
        return str(error).splitlines()


def _unsigned(ref: str, target: PublishedImage, annotations: Mapping[str, str]) -> tuple[()]:
    cosign.verify(ref, target.signing, target.login, annotations)
    return ()


def _against_policy(ref: str, target: PublishedImage, now: datetime) -> list[str]:
    return verify.Evidence(ref, target.signing, target.login, ()).violations(now)


def _loading(ref: str, target: PublishedImage, promotion: PromotionConfig, now: datetime) -> Iterator[str]:
    try:
        every = cosign.every_attested(ref, "loading", target.signing, target.login)
    except cosign.Unsigned as error:
        raise SlipwayError(f"{error}; {_INSPECTED}") from None
    with shape.expected(f"{ref}: loading"):
        evidence = loading_evidence.newest(every)
        faults = loading_evidence.counting(evidence, target.config.inspection.exceptions)
    for fault in faults:
        yield f"{ref}: loading: {one_line(fault, 500)}"
    yield from _old(f"{ref}: loading: inspected", str(evidence["inspected"]), promotion, now)


def _vulnerable(ref: str, target: PublishedImage, policy: VulnerabilitiesConfig, now: datetime) -> Iterator[str]:
    scan = grype.scan(ref, policy, target.login, ROOT)
    for line in judge(scan.vulnerabilities, policy, now.date()).lines():
        yield f"{ref}: vulnerability: {line}"


def _gpu(
    target: PublishedImage, required: GpuChecksConfig, promotion: PromotionConfig, root: Path, now: datetime
) -> Iterator[str]:
    every = cosign.every_attested(target.ref, "gpu", target.signing, target.login)
    report = gpu_report.newest([gpu_report.of_predicate(each, target.ref) for each in every])
    where = f"{target.ref}: gpu:"
    for digest in dict.fromkeys(each.digest for each in report.every):
        if digest != target.digest:
            yield f"{where} the report is of another image, {digest or 'which it does not name'}"
    newest = newest_evidence.noted(target.stack, target.name, target.digest, root)
    if newest and report.ended < newest:
        yield (
            f"{where} the report of {report.ended.isoformat()} is not the newest: one of {newest.isoformat()} was "
            "attested, and is not there any more"
        )
    for violation in gpu_report.violations(report, required):
        yield f"{where} {violation}"
    first = min(each.finished for each in report.every)
    yield from _old(f"{where} checked", first.isoformat(), promotion, now)


def _old(what: str, date: str, promotion: PromotionConfig, now: datetime) -> Iterator[str]:
    days = age.days(date, now)
    if days is None or age.is_ahead(days):
        yield f"{what} at '{one_line(date, 40)}', so its age is unknown"
    elif days > promotion.max_age_days:
        yield f"{what} {int(days)} days ago; at most {promotion.max_age_days} are allowed"


def _move(target: PublishedImage, tag: str, before: str | None) -> None:
    """Move the tag if it still is where it was. Registries have no such operation: the tag is read before and after.

    Raises SlipwayError: another promotion moved it. Whatever the order, it names an image that was verified.
    """
    repository = Repository(f"{target.repository}:{tag}", target.login)
    meanwhile = repository.visible_digest()
    if meanwhile != before:
        raise SlipwayError(
            f"{target.repository}:{tag}: moved from {before or 'nothing'} to {meanwhile or 'nothing'} while the "
            "evidence was verified; promote again if that is still meant"
        )
    client.tag(target.ref, tag, target.login)
    after = repository.visible_digest()
    if after != target.digest:
        raise SlipwayError(
            f"{target.repository}:{tag}: another promotion moved it at the same time, to {after or 'nothing'}"
        )
