"""Declares the supply chain of a stack: verified parents, and the tags, signatures and attestations of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.engines import pools
from components.image import ImageVariant
from components.registry.interface import Login, Registry
from components.supply_chain.extra_tag import ExtraTag, ExtraTagArgs
from components.supply_chain.image_index import ImageIndex
from components.supply_chain.image_signature import Signature, SignatureArgs, SignedArgs
from components.supply_chain.loading_attestation import Loading, LoadingArgs
from components.supply_chain.provenance_attestation import Provenance, ProvenanceArgs
from components.supply_chain.sbom_attestation import Sbom
from components.supply_chain.scan_attestation import VulnerabilityScan, VulnerabilityScanArgs
from components.supply_chain.verified_parent import VerifiedParent, VerifiedParentArgs
from components.supply_chain.vex_attestation import Vex
from stacks.config.signing import Signing
from stacks.plan import Plan, PlannedImage
from stacks.references import covering
from stacks.spec import CONTEXT


def verified(plan: Plan, registry: Registry) -> dict[str, VerifiedParent]:
    """Declare the verification of each outside parent that needs a signature; return them by reference."""
    after = pulumi.ResourceOptions(depends_on=[registry])  # it may be their pull-through cache

    def login(ref: str) -> Login:
        return registry.login([]) if covering([registry.server], ref) else Login()

    return {
        ref: VerifiedParent(ref.partition("@")[0], VerifiedParentArgs(ref, signer, login(ref)), after)
        for ref, signer in plan.signers.items()
    }


def after_push(
    plan: Plan, registry: Registry, variants: Mapping[str, ImageVariant], indexes: Mapping[str, ImageIndex]
) -> dict[str, Any]:
    """Declare the additional tags, signatures and attestations of each image; return the outputs.

    An index has the additional tags and a signature. Its platforms' images have signatures and attestations.
    """
    tags: dict[str, Any] = {}
    signed: dict[str, Any] = {}
    by_platform = pools(plan)
    for image in plan.images:
        if image.spec.product and not plan.config.signing:
            continue
        name = image.spec.name
        variant = variants[name]
        below = pulumi.ResourceOptions(parent=variant)
        login = registry.login([variant.ref])  # after the push: a login from before the build may have expired
        for tag in () if image.spec.is_part else image.extra_tags:
            extra = ExtraTagArgs(ref=variant.ref, tag=tag, login=login)
            tags.setdefault(name, []).append(ExtraTag(f"{name}-tag-{tag}", extra, below).name)
        if plan.config.signing:
            pool = by_platform.get(image.spec.platform)
            engines = pool.order(image.spec.published_name) if pool else []
            signed[name] = _signed(image, variants, login, plan, plan.config.signing, engines)
    for name, index in indexes.items():
        below = pulumi.ResourceOptions(parent=index)
        login = registry.login([index.ref])
        for tag in plan.indexes[name][0].extra_tags:
            extra = ExtraTagArgs(ref=index.ref, tag=tag, login=login)
            tags.setdefault(name, []).append(ExtraTag(f"{name}-tag-{tag}", extra, below).name)
        if plan.config.signing:
            states = plan.index_annotations(name)
            signature = Signature(
                f"{name}-signature", SignatureArgs(index.ref, plan.config.signing, login, states), below
            )
            signed[name] = {"signature": signature.signature, "by": plan.config.signing.who}
    return {key: value for key, value in {"extraTags": tags, "signed": signed}.items() if value}


def _signed(
    image: PlannedImage,
    variants: Mapping[str, ImageVariant],
    login: Login,
    plan: Plan,
    signing: Signing,
    engines: Sequence[str],
) -> dict[str, Any]:
    """Declare an image's signature and attestations; ``engines`` are in the order in which they take it."""
    name, config = image.spec.name, plan.config
    variant = variants[name]
    args = SignedArgs(variant.ref, signing, login)
    # One after the other, because all attestations of an image share a tag.
    named = SignatureArgs(variant.ref, signing, login, image.annotations)
    signature = Signature(f"{name}-signature", named, pulumi.ResourceOptions(parent=variant))
    last: pulumi.Resource = signature
    outputs: dict[str, Any] = {"signature": signature.signature, "by": signing.who}
    if image.spec.product:  # reuse needs its signature only: its tag already says what it is
        return outputs
    if signing.sbom:
        after = pulumi.ResourceOptions(parent=variant, depends_on=[last])
        sbom = Sbom(f"{name}-sbom", args, after)
        last = sbom
        outputs["sbom"] = {"attestation": sbom.attestation, "packages": sbom.packages}
    if signing.provenance:
        parents = {key: image.args[key] for key in image.content.parents if key in image.args}
        siblings = {key: variants[parent].ref for key, parent in image.siblings.items()}
        provenance_args = ProvenanceArgs(
            variant.ref,
            signing,
            login,
            contents=image.contents,
            dockerfile=f"{CONTEXT}/{image.spec.dockerfile}",
            parents={**parents, **siblings},
            sources=plan.sources(image),
            build_on=config.build_on,
            engines=engines,
        )
        after = pulumi.ResourceOptions(parent=variant, depends_on=[last])
        provenance = Provenance(f"{name}-provenance", provenance_args, after)
        last = provenance
        outputs["provenance"] = {key: getattr(provenance, key) for key in ("attestation", "source", "revision", "date")}
    if variant.loading is not None:
        exceptions = config.inspection.exceptions
        loading_args = LoadingArgs(
            variant.ref,
            signing,
            login,
            evidence=variant.loading,
            exceptions=exceptions,
            compiled=image.spec.compiled,
        )
        after = pulumi.ResourceOptions(parent=variant, depends_on=[last])
        loading = Loading(f"{name}-loading", loading_args, after)
        last = loading
        outputs["loading"] = {"attestation": loading.attestation, "result": loading.result}
    if variant.scan is not None and config.vulnerabilities:
        scan_args = VulnerabilityScanArgs(
            variant.ref, signing, login, evidence=variant.scan, policy=config.vulnerabilities
        )
        after = pulumi.ResourceOptions(parent=variant, depends_on=[last])
        scan = VulnerabilityScan(f"{name}-scan", scan_args, after)
        last = scan
        outputs["scan"] = {"attestation": scan.attestation}
    if config.vulnerabilities and config.vulnerabilities.exceptions:
        after = pulumi.ResourceOptions(parent=variant, depends_on=[last])
        vex = Vex(f"{name}-vex", args, config.vulnerabilities.exceptions, after)
        outputs["vex"] = {"attestation": vex.attestation}
    return outputs
