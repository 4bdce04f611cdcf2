"""``LoadingAttestation``: the attested inspection of a pushed image: everything in it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction
from components.supply_chain.image_signature import SignedArgs, signing_inputs

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.placement import Gates


@dataclass(frozen=True)
class LoadingArgs(SignedArgs):
    """Also the evidence of the image's tag, and its gates.

    There is none if the image got its tag before there was a gate: it is inspected now.
    """

    evidence: pulumi.Input[Mapping[str, Any]]
    gates: Gates


class AttestLoading(ImageAction):
    """Attests what the gate of the image's tag saw. Changed exceptions attest nothing again."""

    triggers = ("ref", "signing")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Attest the inspection; return where the attestation is, and its result."""
        from components.supply_chain.gates import loading_gate
        from containers.evidence import cosign
        from stacks.config.gates.inspection_gate import InspectionExceptionConfig
        from stacks.config.signing import SigningConfig

        evidence = props.get("evidence")
        if not evidence:
            rows = [InspectionExceptionConfig.model_validate(row) for row in props["exceptions"]]
            evidence = loading_gate.evidence(props["ref"], login, rows, props["compiled"], props.get("question"))
        signing = SigningConfig.model_validate(props["signing"])
        attestation = cosign.attest(props["ref"], "loading", evidence, signing, login)
        return {"attestation": attestation, "result": evidence["result"]}


class LoadingAttestation(Resource, module="image", name="Loading"):
    """The attested inspection of an image."""

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    result: pulumi.Output[str]
    """PASSED, or FAILED where an image got its tag before there was a gate."""

    def __init__(self, name: str, args: LoadingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            **signing_inputs(args, "attestation", "result"),
            "evidence": args.evidence,
            "exceptions": args.gates.exceptions,
            "compiled": args.gates.compiled,
            "question": args.gates.question,
        }
        super().__init__(AttestLoading(), name, inputs, opts)
