"""``slipway evidence``: the report of an image's GPU checks, attested of its digest."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cli.promotion import newest_evidence
from cli.promotion.published_image import published
from containers.errors import SlipwayError, one_line
from containers.evidence import age, cosign, gpu_report

_MOST: Final = 64 << 20
"""Bytes of a job's output that are read."""


def attach(stack: str, image: str, report: str, root: Path, digest: str | None = None) -> str:
    """Attest the reports in a file, or on standard input (``-``), of a published image; return a line that says so.

    A report of failed checks is attested too: without it, an earlier one of checks that passed would go on to count.

    Raises SlipwayError: there is no such stack, image or file; the report is malformed, of another image, of the future
    or older than the newest one; or cosign, the registry or Pulumi fails.
    """
    target = published(stack, image, root, digest)
    cosign.check(target.signing)
    parsed = gpu_report.parse(_text(report), report)
    for each in parsed.every:
        if not each.digest:
            raise SlipwayError(
                f"{one_line(report)}: the report does not say which image was checked: run the checks with "
                f"CHECKED_IMAGE={target.ref}"
            )
        if each.digest != target.digest:
            raise SlipwayError(f"{one_line(report)}: the report is of {each.digest}, and {image} is {target.digest}")
        old = age.days(each.finished.isoformat(), datetime.now(UTC))
        if old is None or age.is_ahead(old) or each.started > each.finished:
            raise SlipwayError(
                f"{one_line(report)}: the checks ended at {each.finished}, which cannot be; set the clock"
            )
    newest = newest_evidence.noted(stack, image, target.digest, root)
    if newest and parsed.ended < newest:
        raise SlipwayError(
            f"{one_line(report)}: the checks ended at {parsed.ended}, and newer ones, of {newest}, are attested already"
        )
    # Noted first: if it then fails, nothing counts until a report is attested.
    newest_evidence.note(stack, image, target.digest, parsed.ended, root)
    cosign.attest(target.ref, "gpu", parsed.predicate(), target.signing, target.login)
    return f"{image}: {target.ref}: attested: {parsed.summary()}"


def _text(report: str) -> str:
    try:
        if report == "-":
            data = sys.stdin.buffer.read(_MOST + 1)
        else:
            with Path(report).open("rb") as file:
                data = file.read(_MOST + 1)
    except OSError as error:
        raise SlipwayError(f"{one_line(report)}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST:
        raise SlipwayError(
            f"{one_line(report)}: longer than {_MOST >> 20} MiB; give the report, or the job's log alone"
        )
    return data.decode(errors="replace")
