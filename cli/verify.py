"""``slipway verify``: the signatures of a stack's published images and of their parents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cli.diff import stack_diff
from containers.errors import SlipwayError, printable
from containers.evidence import cosign, loading_evidence, shape, signing_certificates, slsa
from containers.evidence.vulnerabilities import scan_record
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from containers.registry.reference import Reference
from stacks import plan
from stacks.config.signing import SignerConfig, SigningConfig, trusted
from stacks.differences import platform_parts
from stacks.plan import Plan

_DELETED: Final = ("deleted", "from the registry; no image needs it, and the next build that does builds it again")


Fact = tuple[str, str]
"""What was verified, empty for more of the fact before, and what it says."""


@dataclass(frozen=True)
class Verified:
    """A published image, or under the name ``parent`` an image of others, and its verified facts."""

    name: str
    ref: str
    facts: tuple[Fact, ...]

    def lines(self) -> Iterator[str]:
        """Yield a line for each fact, below one with the image."""
        yield f"{self.name}: {self.ref}"
        yield from (f"  {what:<10}  {text}" for what, text in self.facts)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; each fact has the lines of its text."""
        facts: dict[str, list[str]] = {}
        for what, text in self.facts:
            facts.setdefault(what or [*facts][-1], []).append(text)
        return {"name": self.name, "ref": self.ref, "facts": facts}


def as_json(verified: Iterator[Verified]) -> dict[str, Any]:
    """Return as JSON what is verified, up to the first mistake, and the mistakes."""
    images: list[dict[str, Any]] = []
    mistakes: list[str] = []
    try:
        images += (each.as_json() for each in verified)
    except SlipwayError as error:
        mistakes = str(error).splitlines()
    return {"verified": images, "mistakes": mistakes}


def verify(stack: str, root: Path, image: str | None = None) -> Iterator[Verified]:
    """Verify the last published images of a stack, or one of them, and yield each with its parents.

    With an index, the images that it names are verified.

    What the policy refuses is raised last, for all images at once.

    Raises SlipwayError: there is no such stack or image, the stack does not sign or has published nothing, a required
    signature is missing, or an image violates the policy.
    """
    planned = plan.make(stack, root=root)
    signing = planned.config.signing
    if signing is None:
        raise SlipwayError(f"stack {stack}: slipway:signing is not set, so there are no signatures")
    outputs = stack_diff.outputs(stack, root)
    products: Mapping[str, Mapping[str, str]] = outputs.get("products", {})
    images = outputs.get("images", {})
    indexes = {name for name, image in images.items() if "platforms" in image}
    published: Mapping[str, Mapping[str, str]] = {**images, **platform_parts(images), **products}
    pushed = stack_diff.pushed(stack, published, image)
    signed: Mapping[str, Mapping[str, Any]] = outputs.get("signed", {})
    login = stack_login.configured(planned.config.registry)
    # Without provenance, the parents are those of the present configuration and lock.
    parents = {} if signing.provenance or image else planned.signers
    selected = {image, *(platform_parts({image: images[image]}) if image and image in images else ())}
    violations: list[str] = []
    for name, built in pushed.items():
        if image is None or name in selected:
            ref = built["ref"]
            annotations = stated(planned, name, built)
            if name in products and not Repository(ref, login).exists():
                yield Verified(name, ref, (_DELETED,))
                continue
            facts = [signature(ref, signing, login, annotations)]
            if name not in indexes and name not in products:
                evidence = Evidence(ref, signing, login, signed.get(name, {}))
                facts += evidence.facts()
                violations += evidence.violations(datetime.now(UTC))
                parents |= evidence.parents(planned)
            yield Verified(name, ref, tuple(facts))
    siblings = {
        Reference.of(built["ref"]).normal.repository for built in pushed.values()
    }  # at any digest: one may be older
    for parent, signer in parents.items():
        if Reference.of(parent).normal.repository not in siblings:
            ref = _pinned(parent, login)
            yield Verified("parent", ref, (signature(ref, signer, login, planned.parent_annotations(parent)),))
    if violations:
        raise SlipwayError("\n".join(violations))


def stated(planned: Plan, name: str, built: Mapping[str, str]) -> dict[str, str]:
    """Return what a published image's signature must state: its tag; its fingerprint too if it is the planned one."""
    image = next((image for image in planned.images if image.spec.name == name), None)
    planned_now = planned.index_annotations(name) if name in planned.indexes else image.annotations if image else {}
    return planned_now if planned_now.get("tag") == built["tag"] else {"tag": built["tag"]}


def signature(
    ref: str, signer: SignerConfig, login: Login | None, annotations: Mapping[str, str] | None = None
) -> Fact:
    """Return who signed an image, verified. Raises SlipwayError: the signer did not, or a tag names the image."""
    if _digest(ref):
        cosign.verify(ref, signer, login, annotations)
        name = f", as {annotations['tag']}" if annotations else ""
        return "signature", f"{signer.who}{name}"
    raise SlipwayError(f"{ref}: the image is built on its tag, which may have moved since; lock it, and publish again")


class Evidence:
    """The attestations of an image, verified.

    ``published`` are those of the last update, by their kind.

    Raises SlipwayError: one of the stack's signatures, or of its policy's, is missing.
    """

    def __init__(self, ref: str, signing: SigningConfig, login: Login | None, published: Collection[str]) -> None:
        self._ref = ref
        self._signing = signing
        self._login = login
        required = signing.policy.attestations
        self._sbom = self._attested("sbom") if signing.sbom or "sbom" in required else None
        self._provenance = self._attested("provenance") if signing.provenance or "provenance" in required else None
        self._loading = self._newest_loading() if "loading" in {*published, *required} else None
        self._scan = self._newest_scan() if "scan" in {*published, *required} else None

    def _attested(self, kind: cosign.Kind) -> Mapping[str, Any]:
        return cosign.attested(self._ref, kind, self._signing, self._login)

    def _newest_loading(self) -> Mapping[str, Any]:
        with shape.expected(self._ref):
            return loading_evidence.newest(cosign.every_attested(self._ref, "loading", self._signing, self._login))

    def _newest_scan(self) -> Mapping[str, Any]:
        with shape.expected(self._ref):
            record = scan_record.newest(cosign.every_attested(self._ref, "scan", self._signing, self._login))
        if record is None:
            raise SlipwayError(f"{self._ref}: scan: attested by other scanners alone; `slipway` attests Grype's")
        return record

    def facts(self) -> list[Fact]:
        """Return the content of the attestations, and the SLSA level that they show.

        Raises SlipwayError: they have another shape than ours.
        """
        with shape.expected(self._ref):
            return [(what, printable(text)) for what, text in self._facts()]

    def _facts(self) -> Iterator[Fact]:
        if self._sbom is not None:
            yield "sbom", f"{len(self._sbom.get('packages', []))} packages"
        if self._loading is not None:
            yield "loading", f"{loading_evidence.summary(self._loading)}"
        if self._scan is not None:
            yield "scan", f"{scan_record.summary(self._scan)}"
        if self._provenance is None:
            yield "slsa", "build level 0: no provenance is attested"
            return
        yield from _origin(self._provenance)
        claims = signing_certificates.claims(self._ref, self._login) if self._signing.identity else {}
        level, reason = slsa.level(self._provenance, self._signing, claims)
        yield "slsa", f"build level {level}: {reason}"

    def violations(self, now: datetime) -> list[str]:
        """Return a line for each thing that the policy refuses."""
        if self._provenance is None:
            return []
        with shape.expected(self._ref):
            violations = list(slsa.violations(self._provenance, self._signing.policy, now))
        return [f"{self._ref}: policy: {each}" for each in violations]

    def parents(self, planned: Plan) -> dict[str, SignerConfig]:
        """Return the required signers of parents that others publish, by parent."""
        with shape.expected(self._ref):
            names = slsa.parents(self._provenance) if self._provenance else []
        signers = {parent: _trusted(parent, planned) for parent in names}
        return {parent: signer for parent, signer in signers.items() if signer}


def _digest(ref: str) -> bool:
    return "@sha256:" in ref


def _pinned(parent: str, login: Login | None) -> str:
    """Return a parent by digest; another stack publishes it under a tag.

    A parent that was built on its tag stays `repository@tag`, as provenance has it.

    Raises SlipwayError: the registry does not have it.
    """
    if Reference.of(parent).digest:
        return parent
    digest = Repository(parent, login).visible_digest()
    if not digest:
        raise SlipwayError(f"{parent}: not in the registry: publish its stack with `slipway up` first")
    return str(Reference.of(parent).at(digest))


def _trusted(parent: str, planned: Plan) -> SignerConfig | None:
    config, repository = planned.config, Reference.of(parent).repository
    stated = (trusted(config.trust, name) for name in config.public(parent))
    signers = planned.signers
    others = (signers.get(name) for name, other in planned.others.items() if other.repository == repository)
    return next(filter(None, (*stated, *others)), None)


def _origin(provenance: Mapping[str, Any]) -> Iterator[Fact]:
    origin = slsa.summary(provenance)
    source = " at ".join(filter(None, (origin["source"], origin["revision"][:12]))) or "unknown source"
    uncommitted = provenance["buildDefinition"]["internalParameters"]["uncommitted"]
    changed = ", with uncommitted changes" if uncommitted else ""
    yield "provenance", f"{source}{changed}, built {origin['date'] or 'at an unknown time'}"
    yield "", f"by {provenance['runDetails']['builder']['id']}"
    for parent in slsa.parents(provenance):
        yield "", f"on {parent}{'' if _digest(parent) else ', by tag only'}"
