"""``Signature``: the cosign signature of a pushed image."""

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
    from stacks.config.signing import SigningConfig


@dataclass(frozen=True)
class SignedArgs:
    """A pushed image as ``repository@sha256:...``, how it is signed, and the login that may push signatures."""

    ref: pulumi.Input[str]
    signing: SigningConfig
    login: PushLogin


@dataclass(frozen=True)
class SignatureArgs(SignedArgs):
    """Also what the signature states besides the digest: the image's ``tag`` and ``fingerprint``."""

    annotations: Mapping[str, str]


def signing_inputs(args: SignedArgs, *outputs: str) -> dict[str, Any]:
    """Return the inputs of a resource that signs, with ``None`` for each of its outputs."""
    # The others select further attestations, or what is required of them; they change no signature.
    signing = args.signing.model_dump(by_alias=True, exclude_none=True, exclude={"sbom", "provenance", "policy"})
    return {"ref": args.ref, "signing": signing, **dict.fromkeys(outputs), **login_inputs(args.login)}


class SignImage(ImageAction):
    """Signs an image and verifies the signature."""

    triggers = ("ref", "signing", "annotations")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Sign the image; return where the signature is."""
        from containers.evidence import cosign
        from stacks.config.signing import SigningConfig

        signing = SigningConfig.model_validate(props["signing"])
        return {"signature": cosign.sign(props["ref"], signing, login, props["annotations"])}


class Signature(Resource, module="image", name="Signature"):
    """An image's signature, verified after signing."""

    signature: pulumi.Output[str]
    """The signature's reference: ``repository:sha256-....sig``."""

    def __init__(self, name: str, args: SignatureArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {**signing_inputs(args, "signature"), "annotations": args.annotations}
        super().__init__(SignImage(), name, inputs, opts)
