"""``slipway scan``: the published images of a stack, each by what is in the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.diff import stack_diff
from cli.inspection import vulnerability_report
from containers.errors import SlipwayError
from containers.evidence.vulnerabilities import grype
from tests.fakes import vulnerability_scanner
from tests.helpers.sample_repository import STACK, make

TORCH, AMD, ARM = (f"r.example/x/torch@sha256:{digit * 64}" for digit in "abc")
PLATFORMS = {"linux/amd64": {"ref": AMD}, "linux/arm64": {"ref": ARM}}

Scan = Callable[..., list[vulnerability_report.VulnerabilityReport]]


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """Return a function that scans a stack with these outputs; each image has the vulnerabilities of the stand-in."""
    checkout = make(tmp_path / "repo", program=False)
    monkeypatch.setattr(grype, "_CACHE", tmp_path / "cache")
    vulnerability_scanner.install(tmp_path, monkeypatch)

    def run(
        images: dict[str, Any], image: str | None = None, **keys: Any
    ) -> list[vulnerability_report.VulnerabilityReport]:
        registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": {"secure": "x"}}
        config = {"flavor": "local", "registry": registry, **keys}
        checkout.write(STACK, json.dumps({"config": {f"slipway:{key}": value for key, value in config.items()}}))
        monkeypatch.setattr(stack_diff, "outputs", lambda *_: {"images": images})
        return list(vulnerability_report.reports("local", checkout.root, image))

    return run


def test_scan_says_what_it_refuses_and_excepts(scan: Scan) -> None:
    (report,) = scan({"torch": {"ref": TORCH}})
    assert report.refused
    assert str(report).splitlines() == [
        f"torch: {TORCH}",
        "  refused     CVE-2026-0001 (critical): apt 2.6.2, fixed in 99",
        "  known       2, by the database of 2026-11-24",
    ]
    fault = {"id": "CVE-2026-0001", "severity": "critical", "package": "apt", "version": "2.6.2", "fixed_in": ("99",)}
    assert [{key: each[key] for key in fault} for each in report.as_json()["refused"]] == [fault]
    row = {"id": "CVE-2026-0001", "reason": "apt is not run", "until": "9999-12-31"}
    (report,) = scan({"torch": {"ref": TORCH}}, vulnerabilities={"exceptions": [row]})
    assert not report.refused
    excepted = json.loads(json.dumps(report.as_json()))["excepted"]
    assert [(each["id"], each["until"], each["reason"]) for each in excepted] == [
        ("CVE-2026-0001", "9999-12-31", "apt is not run")
    ]
    assert "  excepted    CVE-2026-0001 (critical): apt 2.6.2, fixed in 99, until 9999-12-31: apt is not run" in str(
        report
    )


def test_scan_of_an_index_reads_each_platform(scan: Scan) -> None:
    index = {"ref": TORCH, "platforms": PLATFORMS}
    assert [(each.name, each.ref) for each in scan({"torch": index})] == [("torch-amd64", AMD), ("torch-arm64", ARM)]
    assert [each.ref for each in scan({"torch": index}, "torch-arm64")] == [ARM]


@pytest.mark.parametrize(
    ("images", "image", "message"),
    [
        ({}, None, "stack local has published nothing yet: `slipway up local`"),
        ({"torch": {"ref": "sha256:0"}}, None, "stack local has published nothing yet: `slipway up local`"),
        ({"torch": {"merged": False}}, None, "stack local has published nothing yet: `slipway up local`"),
        (
            {"torch": {"ref": TORCH}},
            "torhc",
            "stack local has published no image 'torhc' (did you mean 'torch'?); it has: torch",
        ),
    ],
)
def test_scan_without_published_image_is_refused(
    scan: Scan, images: dict[str, Any], image: str | None, message: str
) -> None:
    with pytest.raises(SlipwayError) as refusal:
        scan(images, image)
    assert str(refusal.value) == message
