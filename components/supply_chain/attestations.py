"""The attestations of a pushed image: its packages, its origin, its inspection, its scan and its OpenVEX document.

An image that had its tag before there was a gate has no evidence of that one: it is inspected or scanned now. Changed
exceptions or another policy attest no inspection and no scan again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction
from components.supply_chain.image_signature import SignedArgs, signing_inputs

if TYPE_CHECKING:
    from containers.evidence.cosign import Kind
    from containers.registry.credentials import Login
    from stacks.config.signing import SigningConfig


class Attest(ImageAction):
    """Attests a predicate of an image."""

    triggers: ClassVar[tuple[str, ...]] = ("ref", "signing")
    kind: ClassVar[Kind]

    @abstractmethod
    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:
        """Return what is attested."""

    def facts(self, predicate: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - most have none
        """Return the outputs besides the attestation."""
        return {}

    def run_as(self, props: Mapping[str, Any], login: Login | None) -> dict[str, Any]:
        """Attest the predicate; return where the attestation is, and its facts."""
        from containers.evidence import cosign
        from stacks.config.signing import SigningConfig

        signing = SigningConfig.model_validate(props["signing"])
        predicate = self.predicate(props, signing, login)
        attestation = cosign.attest(props["ref"], self.kind, predicate, signing, login)
        return {"attestation": attestation, **self.facts(predicate)}


class Attestation(Resource):
    """An attestation of an image, by its action, with the names of its outputs."""

    action: ClassVar[type[Attest]]
    outputs: ClassVar[tuple[str, ...]] = ("attestation",)

    attestation: pulumi.Output[str]
    """The attestation's reference: ``repository:sha256-....att``."""

    def __init__(
        self, name: str, args: SignedArgs, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.action(), name, {**signing_inputs(args, *self.outputs), **inputs}, opts)


class AttestSbom(Attest):
    """Lists an image's packages and attests the list."""

    kind = "sbom"

    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the bill of materials."""
        from containers.evidence import cosign

        return cosign.sbom(props["ref"], login)

    def facts(self, predicate: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the number of packages."""
        return {"packages": len(predicate.get("packages", []))}


class Sbom(Attestation, module="image", name="Sbom"):
    """The attested list of an image's packages, and their number."""

    action, outputs = AttestSbom, ("attestation", "packages")


class AttestProvenance(Attest):
    """Attests from which source, plan and parents an image was built.

    The inputs ``made`` are its contents. ``sources`` has the commit of each git source of the image and its products by
    its URI, empty if it is not locked. ``engines`` are those of ``slipway:engines`` for the image, or the names of the
    replicas of the build service; they are no part of what it is.
    """

    kind = "provenance"

    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:
        """Return the SLSA provenance."""
        from containers.evidence import slsa
        from stacks.checkout_source import source_of
        from stacks.config.stack_file import ROOT

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
        return slsa.predicate(props["ref"], build, source_of(ROOT), login)

    def facts(self, predicate: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the source repository, the commit, and when the image was built."""
        from containers.evidence import slsa

        return slsa.summary(predicate)


class Provenance(Attestation, module="image", name="Provenance"):
    """The attested origin of an image.

    ``source`` is a ``git+https`` URL, empty if unknown, and ``date`` an RFC 3339 time.
    """

    action, outputs = AttestProvenance, ("attestation", "source", "revision", "date")


class AttestLoading(Attest):
    """Attests what the gate of the image's tag saw."""

    kind = "loading"

    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the inspection."""
        from components.supply_chain.gates import loading_gate
        from stacks.config.gates.inspection_gate import InspectionExceptionConfig

        if props.get("evidence"):
            return dict(props["evidence"])
        rows = [InspectionExceptionConfig.model_validate(row) for row in props["exceptions"]]
        return loading_gate.evidence(props["ref"], login, rows, props["compiled"], props.get("question"))

    def facts(self, predicate: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return PASSED, or FAILED where an image got its tag before there was a gate."""
        return {"result": predicate["result"]}


class LoadingAttestation(Attestation, module="image", name="Loading"):
    """The attested inspection of an image, and its result."""

    action, outputs = AttestLoading, ("attestation", "result")


class AttestScan(Attest):
    """Attests what the gate of the image's tag found."""

    kind = "scan"

    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the scan for known vulnerabilities."""
        from components.supply_chain.gates import vulnerability_gate

        return props.get("evidence") or vulnerability_gate.evidence(props["ref"], login, props["policy"])


class VulnerabilityScan(Attestation, module="image", name="VulnerabilityScan"):
    """The attested scan of an image."""

    action = AttestScan


class AttestVex(Attest):
    """Attests what the excepted vulnerabilities of an image mean, again when the exceptions change."""

    triggers = ("ref", "signing", "exceptions")
    kind = "vex"

    def predicate(self, props: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the OpenVEX document."""
        from containers.evidence.vulnerabilities import openvex
        from stacks.config.gates.vulnerabilities import VulnerabilityExceptionConfig

        exceptions = [VulnerabilityExceptionConfig.model_validate(row) for row in props["exceptions"]]
        return openvex.document(props["ref"], exceptions, signing.who, datetime.now(UTC))


class Vex(Attestation, module="image", name="Vex"):
    """The attested OpenVEX document of an image."""

    action = AttestVex
