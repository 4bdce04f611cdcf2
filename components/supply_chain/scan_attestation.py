"""``VulnerabilityScan``: the attested scan of a pushed image for known vulnerabilities."""

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
    from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig


@dataclass(frozen=True)
class VulnerabilityScanArgs(SignedArgs):
    """Also the record of the scan before the image's tag, and ``slipway:vulnerabilities``.

    An image that had its tag already has no record: it is scanned now.
    """

    evidence: pulumi.Input[Mapping[str, Any]]
    policy: VulnerabilitiesConfig


class AttestScan(ImageAction):
    """Attests what the gate of the image's tag found. A changed policy attests nothing again."""

    triggers = ("ref", "signing")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Attest the scan; return where the attestation is."""
        from components.supply_chain.gates import vulnerability_gate
        from containers.evidence import cosign
        from stacks.config.signing import SigningConfig

        evidence = props.get("evidence") or vulnerability_gate.evidence(props["ref"], login, props["policy"])
        signing = SigningConfig.model_validate(props["signing"])
        return {"attestation": cosign.attest(props["ref"], "scan", evidence, signing, login)}


class VulnerabilityScan(Resource, module="image", name="VulnerabilityScan"):
    """The attested scan of an image."""

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    def __init__(self, name: str, args: VulnerabilityScanArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            **signing_inputs(args, "attestation"),
            "evidence": args.evidence,
            "policy": args.policy.model_dump(mode="json", by_alias=True),
        }
        super().__init__(AttestScan(), name, inputs, opts)
