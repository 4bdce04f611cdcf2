"""``VerifiedParent``: a parent image from elsewhere whose signature has been verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import PushLogin

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.config.signing import SignerConfig


@dataclass(frozen=True)
class VerifiedParentArgs:
    """An outside image by digest, the signer it must have, and the login that may pull it."""

    ref: str
    signer: SignerConfig
    login: PushLogin


class VerifyParent(ImageAction):
    """Verifies that an image has a signature of the signer."""

    triggers = ("ref", "signer")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Verify the signature; return who signed."""
        from containers.evidence import cosign
        from stacks.config.signing import SignerConfig

        signer = SignerConfig.model_validate(props["signer"])
        cosign.verify(props["ref"], signer, login)
        return {"by": signer.who}


class VerifiedParent(Resource, module="image", name="VerifiedParent"):
    """An outside parent with a verified signature. Images on this parent are built only after the verification."""

    by: pulumi.Output[str]
    """The signer, in words."""

    def __init__(self, name: str, args: VerifiedParentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {"ref": args.ref, "signer": args.signer.as_signer(), "by": None, **login_inputs(args.login)}
        super().__init__(VerifyParent(), name, inputs, opts)
