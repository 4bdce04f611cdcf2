"""The stack's exceptions as OpenVEX, for scanners: the meaning of a vulnerability for an image.

The format is OpenVEX 0.2.0 (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from containers.evidence.vulnerabilities.scan_policy import ScanException
from containers.registry.reference import Reference


def document(ref: str, exceptions: Sequence[ScanException], author: str, now: datetime) -> dict[str, Any]:
    """Return the document about the image ``repository@sha256:...``, with a statement for each exception.

    An exception with a justification says that the image is not affected. Without one the image is affected, and the
    reason says what is done about it. Exceptions that ended before ``now`` are left out.
    """
    statements = [_statement(ref, row) for row in exceptions if row.until >= now.date()]
    content = json.dumps([ref, author, statements], sort_keys=True)
    return {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": f"urn:uuid:{uuid5(NAMESPACE_URL, content)}",
        "author": author,
        "timestamp": now.astimezone(UTC).isoformat(timespec="seconds"),
        "version": 1,
        "statements": statements,
    }


def _statement(ref: str, row: ScanException) -> dict[str, Any]:
    notes = f"until {row.until}" + ("" if row.packages == "*" else f", in packages named {row.packages}")
    common = {"vulnerability": {"name": row.id}, "products": [{"@id": _package_url(ref)}], "status_notes": notes}
    if row.justification:
        return {**common, "status": "not_affected", "justification": row.justification, "impact_statement": row.reason}
    return {**common, "status": "affected", "action_statement": row.reason}


def _package_url(ref: str) -> str:
    """Return an image as a package URL of type ``oci`` (purl-spec, types/oci-definition)."""
    image = Reference.of(ref).in_full
    return f"pkg:oci/{image.name}@{quote(image.digest, safe='')}?repository_url={quote(image.repository, safe='/')}"
