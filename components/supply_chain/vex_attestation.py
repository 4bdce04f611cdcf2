"""``Vex``: the attested OpenVEX document of a pushed image: what its excepted vulnerabilities mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction
from components.supply_chain.image_signature import SignedArgs, signing_inputs

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.config.gates.vulnerabilities import VulnerabilityExceptionConfig


@dataclass(frozen=True)
class VexArgs(SignedArgs):
    """Also the exceptions of ``slipway:vulnerabilities``."""

    exceptions: Sequence[VulnerabilityExceptionConfig]


class AttestVex(ImageAction):
    """Attests the stack's exceptions, again when these change."""

    triggers = ("ref", "signing", "exceptions")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Attest the document; return where the attestation is."""
        from containers.evidence import cosign
        from containers.evidence.vulnerabilities import openvex
        from stacks.config.gates.vulnerabilities import VulnerabilityExceptionConfig
        from stacks.config.signing import SigningConfig

        signing = SigningConfig.model_validate(props["signing"])
        exceptions = [VulnerabilityExceptionConfig.model_validate(row) for row in props["exceptions"]]
        document = openvex.document(props["ref"], exceptions, signing.who, datetime.now(UTC))
        return {"attestation": cosign.attest(props["ref"], "vex", document, signing, login)}


class Vex(Resource, module="image", name="Vex"):
    """The attested OpenVEX document of an image."""

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    def __init__(self, name: str, args: VexArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        rows = [row.model_dump(mode="json", by_alias=True, exclude_none=True) for row in args.exceptions]
        super().__init__(AttestVex(), name, {**signing_inputs(args, "attestation"), "exceptions": rows}, opts)
