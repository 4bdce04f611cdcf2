"""What stands beside a pushed image: its signature, its SBOM, its provenance; and that of parents, verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import OfImage, login_inputs
from components.registry.interface import Login
from oci import client, cosign, slsa
from stacks.config.signing import Signer, Signing
from stacks.config.stack_file import ROOT


@dataclass(frozen=True)
class SignedArgs:
    """A pushed image, ``repository@sha256:...``, how it is signed, and who may push what is signed."""

    ref: pulumi.Input[str]
    signing: Signing
    login: Login


@dataclass(frozen=True)
class ProvenanceArgs(SignedArgs):
    """Beside that: what the image is made of, as a preview shows it, its Dockerfile, and the parents' references."""

    made: Mapping[str, Any]
    dockerfile: str
    parents: Mapping[str, pulumi.Input[str]]


def _how(said: Mapping[str, Any]) -> Signing:
    return Signing.model_validate(said)


def _inputs(args: SignedArgs, *outputs: str) -> dict[str, Any]:
    # sbom and provenance say what else there is, and change nothing of the one.
    signing = args.signing.model_dump(by_alias=True, exclude_none=True, exclude={"sbom", "provenance"})
    return {"ref": args.ref, "signing": signing, **dict.fromkeys(outputs), **login_inputs(args.login)}


class _Signing(OfImage):
    followed = ("ref", "signing")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        return {"signature": cosign.sign(props["ref"], _how(props["signing"]), login)}


class Signature(Resource, module="image", name="Signature"):
    """An image's signature, verified after it is made."""

    signature: pulumi.Output[str]
    """Where it is: ``repository:sha256-....sig``."""

    def __init__(self, name: str, args: SignedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(_Signing(), name, _inputs(args, "signature"), opts)


class _Listing(OfImage):
    followed = ("ref", "signing")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        found = cosign.sbom(props["ref"], login)
        at = cosign.attest(props["ref"], "sbom", found, _how(props["signing"]), login)
        return {"attestation": at, "packages": len(found.get("packages", []))}


class Sbom(Resource, module="image", name="Sbom"):
    """What an image consists of, attested."""

    attestation: pulumi.Output[str]
    """Where it is: ``repository:sha256-....att``."""

    packages: pulumi.Output[int]
    """How many packages it names."""

    def __init__(self, name: str, args: SignedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(_Listing(), name, _inputs(args, "attestation", "packages"), opts)


class _Tracing(OfImage):
    followed = ("ref", "signing")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        said = slsa.predicate(props["ref"], props["made"], props["dockerfile"], props["parents"], ROOT, login)
        at = cosign.attest(props["ref"], "provenance", said, _how(props["signing"]), login)
        return {"attestation": at, **slsa.summary(said)}


class Provenance(Resource, module="image", name="Provenance"):
    """Where an image comes from, attested."""

    attestation: pulumi.Output[str]
    """Where it is: ``repository:sha256-....att``."""

    source: pulumi.Output[str]
    """The repository, as git+https has it; empty where there is none."""

    revision: pulumi.Output[str]
    """The commit that was checked out."""

    date: pulumi.Output[str]
    """When the image was built, as RFC 3339 has it."""

    def __init__(self, name: str, args: ProvenanceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            **_inputs(args, "attestation", "source", "revision", "date"),
            "made": args.made,
            "dockerfile": args.dockerfile,
            "parents": args.parents,
        }
        super().__init__(_Tracing(), name, inputs, opts)


@dataclass(frozen=True)
class VerifiedParentArgs:
    """An image that others publish, by digest, whose signature it must have, and who may pull it."""

    ref: str
    signer: Signer
    login: Login


class _Verifying(OfImage):
    followed = ("ref", "signer")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        signer = Signer.model_validate(props["signer"])
        cosign.verify(props["ref"], signer, login)
        return {"by": signer.who}


class VerifiedParent(Resource, module="image", name="VerifiedParent"):
    """An outside parent whose signature has been verified: images are built on it only after that."""

    by: pulumi.Output[str]
    """Who has signed it, in words."""

    def __init__(self, name: str, args: VerifiedParentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {"ref": args.ref, "signer": args.signer.as_signer(), "by": None, **login_inputs(args.login)}
        super().__init__(_Verifying(), name, inputs, opts)
