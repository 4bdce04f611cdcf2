"""The gates of an image that its engine saves: it is saved once, for the inspection and for the scan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.reached_engine import address
from containers.budget import apart
from containers.engine import engine_image
from containers.image.binaries import contents
from containers.image.layers.layer import Facts


def check(image: Mapping[str, Any]) -> None:
    """Inspect and scan an image on its engine; ``image`` is the inputs of an ``UnpushedImage``.

    For the scan the archive is written to a temporary file without a name, so that nothing of it stays, whatever ends
    this process. Grype opens it among the files that this process has open.

    Raises SlipwayError: something in the image does not load, or is known to be vulnerable; or the engine does not give
    the image.
    """
    if image.get("vulnerabilities") is None:
        _check(image, None)
        return
    with tempfile.TemporaryFile() as file:
        _check(image, Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"))


def _check(image: Mapping[str, Any], archive: Path | None) -> None:
    apart(image["name"], _inspect, dict(image), archive)
    if archive is not None:
        from components.supply_chain.gates import vulnerability_gate

        vulnerability_gate.check_unpushed(image["name"], archive, image["vulnerabilities"])


def _inspect(image: Mapping[str, Any], archive: Path | None) -> None:
    name, exceptions = image["name"], image.get("exceptions")
    facts: Facts = _none if exceptions is None else contents.facts
    # Whatever the gates, the archive is read: it must be of the image that the update built.
    held, layers = engine_image.read(name, image["ref"], address(image), image["platform"], facts, archive)
    if exceptions is not None:
        from components.supply_chain.gates import loading_gate

        loading_gate.check_unpushed(name, held, layers, exceptions, image["compiled"], image.get("question"))


def _none(*_: Any) -> None:
    """Return nothing for an index: nobody inspects the file."""
