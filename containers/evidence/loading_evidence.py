"""The attested inspection of an image: whether everything in it loads.

The predicate begins as the one of test results does (https://in-toto.io/attestation/test-result/v0.1): its ``result``
is PASSED or FAILED. The faults are listed with the excepted ones, so that a reader of the evidence can judge them by
other exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from containers.errors import one_line
from containers.image.binaries.inspection import Inspection

_WIDTH: Final = 500
"""Characters of one fault."""
_MOST: Final = 1000
"""Faults that are listed; an image with more fails whatever is excepted."""


class FaultException(Protocol):
    """A fault that does not stop an image."""

    def covers(self, file: str, names: Sequence[str]) -> bool:
        """Return whether it excepts a fault of a file; ``names`` are the missing ones."""

    def model_dump(self) -> dict[str, Any]:
        """Return the exception as the evidence lists it."""


def predicate(inspections: Sequence[Inspection], exceptions: Sequence[FaultException], now: datetime) -> dict[str, Any]:
    """Return what inspections of an image, or of each image of an index, say; ``now`` is when they were made."""
    every = dict.fromkeys(fault for inspection in inspections for fault in inspection.faults)
    faults = [
        {"file": fault.file, "names": [*fault.names], "fault": one_line(str(fault), _WIDTH)}
        for fault in list(every)[:_MOST]
    ]
    evidence = {
        "inspected": now.isoformat(timespec="seconds"),
        "images": [_image(inspection) for inspection in inspections],
        "faults": faults,
        "notListed": len(every) - len(faults),
        "exceptions": [row.model_dump() for row in exceptions],
    }
    return {"result": "FAILED" if counting(evidence, exceptions) else "PASSED", **evidence}


def _image(inspection: Inspection) -> dict[str, Any]:
    driver = inspection.driver
    return {
        "digest": inspection.image.digest,
        "platform": inspection.image.platform,
        "loader": inspection.loading.loader,
        "resolved": inspection.loading.resolved,
        "driver": vars(driver) if driver else None,
    }


def newest(every: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the last of an image's inspections: the registry keeps earlier ones, in any order."""
    return max(every, key=lambda evidence: str(evidence["inspected"]))


def counting(evidence: Mapping[str, Any], exceptions: Sequence[FaultException]) -> list[str]:
    """Return the attested faults that no exception covers, a line for each."""
    lines = [
        str(fault["fault"])
        for fault in evidence["faults"]
        if not any(row.covers(fault["file"], fault["names"]) for row in exceptions)
    ]
    rest = evidence["notListed"]
    return [*lines, f"{rest} faults more than the evidence lists"] if rest else lines


def summary(evidence: Mapping[str, Any]) -> str:
    """Return what the evidence says, as one clause: by the exceptions of the day."""
    files = sum(int(image["resolved"]) for image in evidence["images"])
    excepted = len(evidence["faults"]) + evidence["notListed"]
    loads = "everything loads" if evidence["result"] == "PASSED" else "something does not load"
    faults = f", {excepted} of its faults excepted" if excepted and evidence["result"] == "PASSED" else ""
    return f"{loads}: {files} files resolved{faults}, inspected {one_line(evidence['inspected'], 40)}"
