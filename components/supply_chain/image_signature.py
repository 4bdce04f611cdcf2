"""``Signature``: the cosign signature of a pushed image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import Login
from oci import cosign, credentials
from stacks.config.signing import Signing


@dataclass(frozen=True)
class SignedArgs:
    """A pushed image as ``repository@sha256:...``, how it is signed, and the login that may push signatures."""

    ref: pulumi.Input[str]
    signing: Signing
    login: Login


def signing_inputs(args: SignedArgs, *outputs: str) -> dict[str, Any]:
    """Return the inputs of a resource that signs, with ``None`` for each of its outputs."""
    # sbom and provenance select further attestations; they change neither the signature nor one another.
    signing = args.signing.model_dump(by_alias=True, exclude_none=True, exclude={"sbom", "provenance"})
    return {"ref": args.ref, "signing": signing, **dict.fromkeys(outputs), **login_inputs(args.login)}


class SignImage(ImageAction):
    """Signs an image and verifies the signature."""

    triggers = ("ref", "signing")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Sign the image; return where the signature is."""
        return {"signature": cosign.sign(props["ref"], Signing.model_validate(props["signing"]), login)}


class Signature(Resource, module="image", name="Signature"):
    """An image's signature, verified after signing."""

    signature: pulumi.Output[str]
    """The signature's reference: ``repository:sha256-....sig``."""

    def __init__(self, name: str, args: SignedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(SignImage(), name, signing_inputs(args, "signature"), opts)
