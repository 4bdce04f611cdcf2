"""``Sbom``: the attested bill of materials of a pushed image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction
from components.supply_chain.image_signature import SignedArgs, signing_inputs

if TYPE_CHECKING:
    from containers.registry import credentials


class AttestSbom(ImageAction):
    """Lists an image's packages and attests the list."""

    triggers = ("ref", "signing")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Attest the SBOM; return where the attestation is and how many packages it lists."""
        from containers.evidence import cosign
        from stacks.config.signing import SigningConfig

        sbom = cosign.sbom(props["ref"], login)
        attestation = cosign.attest(props["ref"], "sbom", sbom, SigningConfig.model_validate(props["signing"]), login)
        return {"attestation": attestation, "packages": len(sbom.get("packages", []))}


class Sbom(Resource, module="image", name="Sbom"):
    """The attested list of an image's packages."""

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    packages: pulumi.Output[int]
    """The number of packages listed."""

    def __init__(self, name: str, args: SignedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(AttestSbom(), name, signing_inputs(args, "attestation", "packages"), opts)
