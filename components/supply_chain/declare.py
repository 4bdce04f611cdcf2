"""Declares the supply chain of a stack: verified parents, and the tags, signatures and attestations of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.engines import pools
from components.image import ImageVariant
from components.registry.interface import PushLogin, Registry
from components.supply_chain.attestations import (
    Attestation,
    LoadingAttestation,
    Provenance,
    Sbom,
    Vex,
    VulnerabilityScan,
)
from components.supply_chain.extra_tag import ExtraTag, ExtraTagArgs
from components.supply_chain.image_index import ImageIndex
from components.supply_chain.image_signature import Signature, SignatureArgs, SignedArgs
from components.supply_chain.verified_parent import VerifiedParent, VerifiedParentArgs
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
    signed, gates, policy = SignedArgs(variant.ref, signing, login), placed.gates, config.vulnerabilities
    parents = {key: image.args[key] for key in image.content.parents if key in image.args}
    origin = {
        "made": image.contents,
        "dockerfile": image.spec.path,
        "buildOn": config.build_on,
        "engines": [*engines],
        "parents": {**parents, **variant.parents},
        "sources": plan.sources(image),
    }
    inspected = {"exceptions": gates.exceptions, "compiled": gates.compiled, "question": gates.question}
    rows = (
        [row.model_dump(mode="json", by_alias=True, exclude_none=True) for row in policy.exceptions] if policy else []
    )
    kinds: dict[str, tuple[type[Attestation], Mapping[str, Any]]] = {
        "sbom": (Sbom, {}),
        "provenance": (Provenance, origin),
        "loading": (LoadingAttestation, {"evidence": variant.loading, **inspected}),
        "scan": (
            VulnerabilityScan,
            {"evidence": variant.scan, "policy": policy and policy.model_dump(mode="json", by_alias=True)},
        ),
        "vex": (Vex, {"exceptions": rows}),
    }
    outputs: dict[str, Any] = {}
    last: list[pulumi.Resource] = []
    for kind in placed.attested:
        # One after the other, because all attestations of an image share a tag.
        after = pulumi.ResourceOptions(parent=variant, depends_on=last)
        if kind == "signature":
            args = SignatureArgs(**vars(signed), annotations=image.annotations)
            signature = Signature(f"{placed.name}-{kind}", args, after)
            outputs |= {"signature": signature.signature, "by": signing.who}
            last = [signature]
        else:
            declare, inputs = kinds[kind]
            attestation = declare(f"{placed.name}-{kind}", signed, inputs, after)
            outputs[kind] = {key: getattr(attestation, key) for key in attestation.outputs}
            last = [attestation]
    return outputs
