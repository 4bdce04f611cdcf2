"""The gate of an image that is not pushed: read as a stand-in of an engine saves it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from components.supply_chain.gates.unpushed_image import InspectUnpushed
from tests.fakes.vulnerability_scanner import Scanner
from tests.helpers.refusals import refusal
from tests.unit.components import test_unpushed_image as gate
from tests.unit.components.test_unpushed_image import (
    SAVED,
    Client,
    inputs,
)

client = gate.client
scanner = gate.scanner


@pytest.mark.parametrize("inspected", [True, False])
def test_scanned_archive_is_what_the_engine_saved(client: Client, scanner: Scanner, *, inspected: bool) -> None:
    given = inputs(client.hold({}), vulnerabilities={"severity": "high", "database": str(scanner.archive)})
    given |= {} if inspected else {"exceptions": None}
    client.engine.body += bytes(3_000_000)  # padding behind the archive's end
    assert "apt" in refusal(InspectUnpushed().create, given)
    saved = client.archive.read_bytes() + bytes(3_000_000)
    scanned = scanner.scanned()
    assert scanned["sha256"] == hashlib.sha256(saved).hexdigest()
    assert client.calls == [SAVED]
    temporary = client.folder / "temporary"
    assert Path(scanned["temporary"]).parent == temporary
    assert scanned["beside"] == Path(scanned["temporary"]).name  # an update that is killed leaves no archive
    assert list(temporary.iterdir()) == []
