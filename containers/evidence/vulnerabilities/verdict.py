"""Which vulnerabilities of an image keep it from its tag, by the stack's policy."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from containers.evidence.vulnerabilities.grype import Vulnerability
from containers.evidence.vulnerabilities.scan_policy import ScanException, ScanPolicy


@dataclass(frozen=True)
class Verdict:
    """Vulnerabilities that count: those that stop the image, and those excepted, each with the exception.

    ``ended`` has those that stop the image because their exception has ended.
    """

    stopping: tuple[Vulnerability, ...]
    excepted: tuple[tuple[Vulnerability, ScanException], ...]
    ended: tuple[tuple[Vulnerability, ScanException], ...]

    def lines(self) -> Iterator[str]:
        """Yield a line for each vulnerability that stops the image."""
        ended = dict(self.ended)
        for vulnerability in self.stopping:
            row = ended.get(vulnerability)
            yield f"{vulnerability}" + (f"; its exception ended on {row.until}" if row else "")


def judge(vulnerabilities: Iterable[Vulnerability], policy: ScanPolicy, today: date) -> Verdict:
    """Return what stops an image today. A vulnerability without a known severity may be of any, so it counts."""
    stopping: dict[Vulnerability, None] = {}  # a package in two places is one line
    excepted: dict[Vulnerability, ScanException] = {}
    ended: dict[Vulnerability, ScanException] = {}
    for vulnerability in vulnerabilities:
        if not _counts(vulnerability, policy):
            continue
        rows = [row for row in policy.exceptions if _names(row, vulnerability)]
        valid = next((row for row in rows if row.until >= today), None)
        if valid:
            excepted[vulnerability] = valid
        else:
            stopping[vulnerability] = None
            if rows:
                ended[vulnerability] = max(rows, key=lambda row: row.until)
    return Verdict(tuple(stopping), tuple(excepted.items()), tuple(ended.items()))


def _counts(vulnerability: Vulnerability, policy: ScanPolicy) -> bool:
    grave = vulnerability.severity in {*policy.grave, "unknown"}
    return grave and bool(vulnerability.fixed_in or not policy.fixed_only)


def _names(row: ScanException, vulnerability: Vulnerability) -> bool:
    identifiers = {each.casefold() for each in (vulnerability.id, *vulnerability.aliases)}
    return row.id.casefold() in identifiers and fnmatch.fnmatchcase(vulnerability.package, row.packages)
