"""``Provenance``: the attested SLSA provenance of a pushed image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction
from components.supply_chain.image_signature import SignedArgs, signing_inputs

if TYPE_CHECKING:
    from containers.registry import credentials


@dataclass(frozen=True)
class ProvenanceArgs(SignedArgs):
    """Also the image's contents as a preview shows them, its Dockerfile, its parents, and ``slipway:buildOn``.

    ``sources`` has the commit of each git source of the image and its products by its URI, empty if it is not locked.
    ``engines`` are those of ``slipway:engines`` for the image, or the names of the replicas of the build service; they
    are no part of what it is.
    """

    contents: Mapping[str, Any]
    dockerfile: str
    build_on: str
    parents: Mapping[str, pulumi.Input[str]]
    sources: Mapping[str, str]
    engines: Sequence[str] = ()


class AttestProvenance(ImageAction):
    """Attests from which source, plan and parents an image was built."""

    triggers = ("ref", "signing")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Attest the provenance; return where the attestation is, and its source, revision and date."""
        from containers.evidence import cosign, slsa
        from stacks.checkout_source import source_of
        from stacks.config.signing import SigningConfig
        from stacks.config.stack_file import ROOT

        signing = SigningConfig.model_validate(props["signing"])
        engines = props.get("engines") or []
        build = slsa.Build(
            contents=props["made"],
            dockerfile=props["dockerfile"],
            parents=props["parents"],
            sources=props.get("sources") or {},
            engine=slsa.engine(props["buildOn"], engines),
            builder=slsa.builder(signing),
            engines=engines,
        )
        predicate = slsa.predicate(props["ref"], build, source_of(ROOT), login)
        return {
            "attestation": cosign.attest(props["ref"], "provenance", predicate, signing, login),
            **slsa.summary(predicate),
        }


class Provenance(Resource, module="image", name="Provenance"):
    """The attested origin of an image."""

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    source: pulumi.Output[str]
    """The source repository as a ``git+https`` URL; empty if unknown."""

    revision: pulumi.Output[str]
    """The commit that was checked out."""

    date: pulumi.Output[str]
    """When the image was built, as an RFC 3339 time."""

    def __init__(self, name: str, args: ProvenanceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            **signing_inputs(args, "attestation", "source", "revision", "date"),
            "made": args.contents,
            "dockerfile": args.dockerfile,
            "buildOn": args.build_on,
            "engines": [*args.engines],
            "parents": args.parents,
            "sources": args.sources,
        }
        super().__init__(AttestProvenance(), name, inputs, opts)
