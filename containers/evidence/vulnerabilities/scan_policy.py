"""The policy by which vulnerabilities of an image are judged, as its reader needs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any, Protocol


class ScanException(Protocol):
    """A vulnerability that stops no image until a day."""

    @property
    def id(self) -> str:
        """The identifier, such as ``CVE-2026-1234``."""

    @property
    def packages(self) -> str:
        """The pattern of the names of packages."""

    @property
    def reason(self) -> str:
        """Why the image may be published."""

    @property
    def until(self) -> date:
        """The last day, in UTC."""

    @property
    def justification(self) -> str | None:
        """Why the image is not affected, in OpenVEX's words; None if it is."""


class ScanPolicy(Protocol):
    """The vulnerabilities that stop an image, and their database."""

    @property
    def grave(self) -> Collection[str]:
        """The severities that count."""

    @property
    def fixed_only(self) -> bool:
        """Whether only those count that have a fixed package."""

    @property
    def database(self) -> str | None:
        """The path of an archive or the address of a listing; None for Grype's own."""

    @property
    def max_age(self) -> int:
        """The days after which a database is too old."""

    @property
    def exceptions(self) -> Sequence[ScanException]:
        """The exceptions."""

    def record(self) -> dict[str, Any]:
        """Return the policy as the record of a scan lists it."""
