"""A scan of an image as cosign's predicate of vulnerability scans.

The format is cosign's `vuln`, of the type https://cosign.sigstore.dev/attestation/vuln/v1: sigstore/cosign v2.6.5,
specs/COSIGN_VULN_ATTESTATION_SPEC.md, as its program writes it, with one scanner instead of a list
(pkg/cosign/attestation/attestation.go, `CosignVulnPredicate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from containers.errors import one_line
from containers.evidence.vulnerabilities.grype import Scan
from containers.evidence.vulnerabilities.scan_policy import ScanPolicy

_GRYPE: Final = "pkg:golang/github.com/anchore/grype"
_MOST: Final = 5000
"""Matches that are listed, the gravest first."""


def predicate(scan: Scan, policy: ScanPolicy) -> dict[str, Any]:
    """Return a scan's record: Grype's matches, reduced to what identifies them, and the stack's policy of the day."""
    release = f"@v{scan.version}" if scan.version[:1].isdigit() else ""  # one that was built by hand may not know it
    return {
        "invocation": {"parameters": policy.record(), "uri": "", "event_id": "", "builder.id": ""},
        "scanner": {
            "uri": f"{_GRYPE}{release}",
            "version": scan.version,
            # A stack's own database is at a path of its machine, or at an address that may be secret.
            "db": {"uri": "" if policy.database else scan.source, "version": _time(scan.database)},
            "result": {"matches": [*scan.matches[:_MOST]], "notListed": max(0, len(scan.matches) - _MOST)},
        },
        "metadata": {"scanStartedOn": _time(scan.started), "scanFinishedOn": _time(scan.finished)},
    }


def newest(records: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the last record that ``predicate`` made, or None: other scanners attest with the same type."""
    ours = [record for record in records if _is_ours(record)]
    return max(ours, key=lambda record: str(record["metadata"]["scanFinishedOn"]), default=None)


def _is_ours(record: Mapping[str, Any]) -> bool:
    match record:
        case {
            "scanner": {"uri": str(uri), "db": {"version": _}, "result": {"matches": list(), "notListed": int()}},
            "metadata": {"scanFinishedOn": _},
        }:
            return uri.startswith(_GRYPE)
    return False


def summary(record: Mapping[str, Any]) -> str:
    """Return what a record says, as one clause."""
    scanner, metadata = record["scanner"], record["metadata"]
    known = len(scanner["result"]["matches"]) + scanner["result"]["notListed"]
    database, scanned = (one_line(str(each)[:10]) for each in (scanner["db"]["version"], metadata["scanFinishedOn"]))
    return f"{known} known vulnerabilities on {scanned}, by the database of {database}"


def _time(value: datetime) -> str:
    """Return a time as Go reads one (RFC 3339)."""
    return value.isoformat(timespec="seconds")
