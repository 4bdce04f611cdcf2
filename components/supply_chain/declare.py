"""Declares the supply chain of a stack: verified parents, and the tags, signatures and attestations of its images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi

from components.engines import pools
from components.image import ImageVariant
from components.registry.interface import PushLogin, Registry
from components.supply_chain.extra_tag import ExtraTag, ExtraTagArgs
from components.supply_chain.image_index import ImageIndex
from components.supply_chain.image_signature import Signature, SignatureArgs, SignedArgs
from components.supply_chain.loading_attestation import LoadingArgs, LoadingAttestation
from components.supply_chain.provenance_attestation import Provenance, ProvenanceArgs
from components.supply_chain.sbom_attestation import Sbom
from components.supply_chain.scan_attestation import VulnerabilityScan, VulnerabilityScanArgs
from components.supply_chain.verified_parent import VerifiedParent, VerifiedParentArgs
from components.supply_chain.vex_attestation import Vex, VexArgs
from containers.registry.reference import Reference, covering
from stacks.placement import PlacedImage, Placement
from stacks.plan import Plan


def verified(plan: Plan, registry: Registry) -> dict[str, VerifiedParent]:
    """Declare the verification of each parent that needs a signature, and the digests of those of other stacks.

    Return them by reference.
    """
    after = pulumi.ResourceOptions(depends_on=[registry])  # it may be their pull-through cache

    def login(ref: str) -> PushLogin:
        return registry.login([]) if covering([registry.server], ref) else PushLogin()

    signers, others = plan.signers, plan.others
    parents: dict[str, VerifiedParent] = {}
    for ref in {**signers, **others}:
        signer, other = signers.get(ref), others.get(ref)
        name = other.reference if other else str(Reference.of(ref).without_digest)
        args = VerifiedParentArgs(ref, signer, login(ref), plan.parent_annotations(ref))
        parents[ref] = VerifiedParent(name, args, after)
    return parents


def after_push(
    placement: Placement, registry: Registry, variants: Mapping[str, ImageVariant], indexes: Mapping[str, ImageIndex]
) -> dict[str, Any]:
    """Declare the additional tags, signatures and attestations of each image; return the outputs.

    An index has the additional tags and a signature. Its platforms' images have signatures and attestations.
    """
    plan = placement.built
    tags: dict[str, Any] = {}
    signed: dict[str, Any] = {}
    by_platform = pools(plan)
    for placed in placement.images:
        name, variant = placed.name, variants[placed.name]
        if not (placed.extra_tags or placed.attested):
            continue
        login = registry.login([variant.ref])  # after the push: a login from before the build may have expired
        if placed.extra_tags:
            tags[name] = _tagged(name, variant, placed.extra_tags, login)
        if placed.attested:
            pool = by_platform.get(placed.image.spec.platform)
            engines = pool.order(placed.image.spec.published_name) if pool else []
            signed[name] = _attested(placed, variants, login, plan, engines)
    for name, index in indexes.items():
        login = registry.login([index.ref])
        if extra := plan.indexes[name][0].extra_tags:
            tags[name] = _tagged(name, index, extra, login)
        if signing := plan.config.signing:
            args = SignatureArgs(index.ref, signing, login, plan.index_annotations(name))
            signature = Signature(f"{name}-signature", args, pulumi.ResourceOptions(parent=index))
            signed[name] = {"signature": signature.signature, "by": signing.who}
    return {key: value for key, value in {"extraTags": tags, "signed": signed}.items() if value}


def _tagged(name: str, image: ImageVariant | ImageIndex, extra: Sequence[str], login: PushLogin) -> list[Any]:
    below = pulumi.ResourceOptions(parent=image)
    return [
        ExtraTag(f"{name}-tag-{tag}", ExtraTagArgs(ref=image.ref, tag=tag, login=login), below).name for tag in extra
    ]


def _attested(
    placed: PlacedImage, variants: Mapping[str, ImageVariant], login: PushLogin, plan: Plan, engines: Sequence[str]
) -> dict[str, Any]:
    """Declare an image's signature and attestations; ``engines`` are in the order in which they take it."""
    config, image, variant, signing = plan.config, placed.image, variants[placed.name], plan.config.signing
    assert signing is not None  # noqa: S101 - nothing is attested without it
    signed = SignedArgs(variant.ref, signing, login)

    def provenance() -> ProvenanceArgs:
        parents = {key: image.args[key] for key in image.content.parents if key in image.args}
        return ProvenanceArgs(
            **vars(signed),
            contents=image.contents,
            dockerfile=image.spec.path,
            parents={**parents, **variant.parents},
            sources=plan.sources(image),
            build_on=config.build_on,
            engines=engines,
        )

    def loading() -> LoadingArgs:
        assert variant.loading is not None  # noqa: S101 - an image that was inspected
        return LoadingArgs(**vars(signed), evidence=variant.loading, gates=placed.gates)

    def scan() -> VulnerabilityScanArgs:
        assert variant.scan is not None and config.vulnerabilities  # noqa: S101, PT018 - an image that was scanned
        return VulnerabilityScanArgs(**vars(signed), evidence=variant.scan, policy=config.vulnerabilities)

    def vex() -> VexArgs:
        assert config.vulnerabilities  # noqa: S101 - it has exceptions
        return VexArgs(**vars(signed), exceptions=config.vulnerabilities.exceptions)

    kinds: dict[str, tuple[Callable[..., pulumi.Resource], Callable[[], SignedArgs], Sequence[str]]] = {
        "signature": (Signature, lambda: SignatureArgs(**vars(signed), annotations=image.annotations), ()),
        "sbom": (Sbom, lambda: signed, ("attestation", "packages")),
        "provenance": (Provenance, provenance, ("attestation", "source", "revision", "date")),
        "loading": (LoadingAttestation, loading, ("attestation", "result")),
        "scan": (VulnerabilityScan, scan, ("attestation",)),
        "vex": (Vex, vex, ("attestation",)),
    }
    outputs: dict[str, Any] = {}
    last: list[pulumi.Resource] = []
    for kind in placed.attested:
        declare, args, exported = kinds[kind]
        # One after the other, because all attestations of an image share a tag.
        last = [declare(f"{placed.name}-{kind}", args(), pulumi.ResourceOptions(parent=variant, depends_on=last))]
        outputs[kind] = {key: getattr(last[0], key) for key in exported}
        if isinstance(last[0], Signature):
            outputs |= {"signature": last[0].signature, "by": signing.who}
    return outputs
