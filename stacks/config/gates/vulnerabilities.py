"""``slipway:vulnerabilities``: the known vulnerabilities that keep an image from its tag, and the exceptions."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, PositiveInt

from stacks.config.model import Line, Model, explaining, form
from stacks.config.values import check_url

Severity = Literal["negligible", "low", "medium", "high", "critical"]
"""How grave a vulnerability is, by Grype's words, the least first."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Justification = Literal[
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
]
"""Why a vulnerability does not affect an image: OpenVEX specification 0.2.0, status justifications."""


def _database(value: str) -> str:
    return check_url(value) if "://" in value else value


class VulnerabilityExceptionConfig(Model):
    """A vulnerability that keeps no image from its tag, with the reason, until a day."""

    id: Annotated[str, form(r"[A-Za-z]+-[0-9A-Za-z:._-]+", "an identifier such as CVE-2026-1234")] = Field(
        description="The vulnerability's identifier, such as CVE-2026-1234 or GHSA-...."
    )
    packages: Line = Field("*", description="Pattern of the packages' names that it is excepted in.")
    reason: Annotated[str, AfterValidator(explaining("why the image may be published"))] = Field(
        description="Why the image may be published with it."
    )
    until: date = Field(description="The last day of the exception (UTC), such as 2027-01-31.")
    justification: Justification | None = Field(
        None, description="Why the image is not affected, in OpenVEX's words. Default: it is, and the risk is accepted."
    )


class VulnerabilitiesConfig(Model):
    """Which known vulnerabilities keep an image from its tag. Grype finds them."""

    severity: Severity = Field("critical", description="The lowest severity with which an image gets no tag.")
    fixed_only: bool = Field(default=True, description="Count only vulnerabilities with a fixed package.")
    database: Annotated[Line, AfterValidator(_database)] | None = Field(
        None,
        description="Grype's database: the path of an archive, or the address of a mirror's latest.json. "
        "Default: Grype's own.",
    )
    max_age: PositiveInt = Field(5, description="Days after which the database is too old to be trusted.")
    exceptions: tuple[VulnerabilityExceptionConfig, ...] = Field(
        (),
        description="Vulnerabilities that stop no image: [{id: CVE-..., packages: PATTERN, reason: TEXT, until: DAY}].",
    )

    @property
    def grave(self) -> tuple[str, ...]:
        """The severities with which an image gets no tag."""
        return SEVERITIES[SEVERITIES.index(self.severity) :]

    def record(self) -> dict[str, Any]:
        """Return the policy as the record of a scan lists it, without the place of the database."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"database"})
