"""Known vulnerabilities of an image: Grype's report, the stack's verdict, and OpenVEX."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from containers.errors import SlipwayError
from containers.evidence.vulnerabilities import grype, openvex, scan_record
from containers.evidence.vulnerabilities.grype import Vulnerability
from containers.evidence.vulnerabilities.verdict import judge
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig, VulnerabilityExceptionConfig
from stacks.config.stack_file import ROOT
from tests.fakes import vulnerability_scanner
from tests.helpers.every import every

TODAY = date(2026, 11, 24)
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
REF = f"ghcr.io/acme/torch@sha256:{'a' * 64}"
OPENSSL = Vulnerability("CVE-2026-1", ("GHSA-x",), "critical", "openssl", "3.0.1", ("3.0.2",))
UNMENDED = Vulnerability("CVE-2026-2", (), "critical", "bash", "5.2", ())
HIGH = Vulnerability("CVE-2026-3", (), "high", "curl", "8.0", ("8.1",))
UNKNOWN = Vulnerability("CVE-2026-4", (), "unknown", "zlib", "1.2", ("1.3",))
EVERY = (OPENSSL, UNMENDED, HIGH, UNKNOWN)


def policy(*exceptions: dict[str, Any], **keys: Any) -> VulnerabilitiesConfig:
    return VulnerabilitiesConfig.model_validate({**keys, "exceptions": exceptions})


def exception(**keys: Any) -> dict[str, Any]:
    return {"id": "CVE-2026-1", "reason": "no TLS here", "until": "2026-12-31", **keys}


@every(
    "keys, stopping",
    [
        ({}, {OPENSSL, UNKNOWN}),
        ({"severity": "high"}, {OPENSSL, HIGH, UNKNOWN}),
        ({"fixedOnly": False}, {OPENSSL, UNMENDED, UNKNOWN}),
        ({"severity": "negligible", "fixedOnly": False}, {OPENSSL, UNMENDED, HIGH, UNKNOWN}),
    ],
)
def test_verdict_follows_severity_and_fix(keys: dict[str, Any], stopping: set[Vulnerability]) -> None:
    assert set(judge(EVERY, policy(**keys), TODAY).stopping) == stopping


@every(
    "keys, excepted",
    [
        ({}, True),
        ({"id": "ghsa-X"}, True),
        ({"id": "CVE-2026-11"}, False),
        ({"packages": "open*"}, True),
        ({"packages": "libssl3"}, False),
        ({"until": "2026-11-24"}, True),
        ({"until": "2026-11-23"}, False),
    ],
)
def test_verdict_exception_counts_by_name_and_day(keys: dict[str, Any], *, excepted: bool) -> None:
    verdict = judge([OPENSSL], policy(exception(**keys)), TODAY)
    assert bool(verdict.excepted) == excepted
    assert bool(verdict.stopping) != excepted


def test_verdict_ended_exception_is_named() -> None:
    rows = [exception(until="2026-11-01"), exception(until="2026-11-23")]
    assert list(judge([OPENSSL, OPENSSL], policy(*rows), TODAY).lines()) == [
        "CVE-2026-1 (critical): openssl 3.0.1, fixed in 3.0.2; its exception ended on 2026-11-23"
    ]


@every(
    "keys, message",
    [
        ({"reason": " "}, "expected why the image may be published"),
        ({"id": "*"}, "expected an identifier such as CVE-2026-1234"),
        ({"until": "soon"}, "until"),
        ({"justification": "because"}, "justification"),
    ],
)
def test_exception_without_a_fact_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("*", r"\*")):
        policy(exception(**keys))


def test_exception_without_an_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="until"):
        policy({"id": "CVE-2026-1", "reason": "no TLS here"})


def test_openvex_says_what_each_exception_means() -> None:
    rows = [
        exception(justification="vulnerable_code_not_in_execute_path", packages="openssl"),
        exception(id="CVE-2026-3"),
        exception(id="CVE-2026-5", until="2026-11-23"),
    ]
    now = datetime(2026, 11, 24, 12, 0, 0, 7, tzinfo=UTC)
    exceptions = [VulnerabilityExceptionConfig.model_validate(row) for row in rows]
    document = openvex.document(REF, exceptions, "acme", now)
    product = f"pkg:oci/torch@sha256%3A{'a' * 64}?repository_url=ghcr.io/acme/torch"
    assert document["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert (document["author"], document["timestamp"], document["version"]) == ("acme", "2026-11-24T12:00:00+00:00", 1)
    assert document["statements"] == [
        {
            "vulnerability": {"name": "CVE-2026-1"},
            "products": [{"@id": product}],
            "status": "not_affected",
            "justification": "vulnerable_code_not_in_execute_path",
            "impact_statement": "no TLS here",
            "status_notes": "until 2026-12-31, in packages named openssl",
        },
        {
            "vulnerability": {"name": "CVE-2026-3"},
            "products": [{"@id": product}],
            "status": "affected",
            "action_statement": "no TLS here",
            "status_notes": "until 2026-12-31",
        },
    ]
    assert document["@id"] != openvex.document(REF, exceptions[:1], "acme", now)["@id"]


@pytest.fixture
def scanner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vulnerability_scanner.Scanner:
    """A stand-in of Grype on PATH, and an empty cache."""
    monkeypatch.setattr(grype, "_CACHE", tmp_path / "cache")
    return vulnerability_scanner.install(tmp_path, monkeypatch)


def test_scan_reads_the_report(scanner: vulnerability_scanner.Scanner) -> None:
    scan = grype.scan(REF, policy(database=str(scanner.archive)), None, ROOT)
    assert scan.vulnerabilities == (
        Vulnerability("CVE-2026-0001", ("CVE-2026-0001",), "critical", "apt", "2.6.2", ("99",)),
        Vulnerability("CVE-2026-0002", ("CVE-2026-0002",), "critical", "bash", "5.2.15-2+b13", ()),
    )
    assert scan.database == datetime(2026, 11, 24, 22, 26, 46, tzinfo=UTC)
    assert datetime.now(UTC) >= scan.finished >= scan.started


MATCHES = [
    {
        "vulnerability": {"id": "CVE-2026-0001", "severity": "Critical", "fix": {"versions": ["99"], "state": "fixed"}},
        "relatedVulnerabilities": [{"id": "CVE-2026-0001"}],
        "artifact": {
            "name": "apt",
            "version": "2.6.2",
            "type": "deb",
            "purl": "pkg:deb/debian/apt@2.6.2?arch=amd64&distro=debian-12",
        },
    },
    {
        "vulnerability": {"id": "CVE-2026-0002", "severity": "Critical", "fix": {"versions": [], "state": "not-fixed"}},
        "relatedVulnerabilities": [{"id": "CVE-2026-0002"}],
        "artifact": {"name": "bash", "version": "5.2.15-2+b13"},
    },
]


def test_record_of_scan_has_cosigns_form(scanner: vulnerability_scanner.Scanner) -> None:
    rules = policy(exception())
    scan = replace(grype.scan(REF, rules, None, ROOT), started=NOON, finished=NOON + timedelta(minutes=1))
    record = scan_record.predicate(scan, rules)
    row = {"id": "CVE-2026-1", "packages": "*", "reason": "no TLS here", "until": "2026-12-31"}
    assert record == {
        "invocation": {
            "parameters": {"severity": "critical", "fixedOnly": True, "maxAge": 5, "exceptions": [row]},
            "uri": "",
            "event_id": "",
            "builder.id": "",
        },
        "scanner": {
            "uri": "pkg:golang/github.com/anchore/grype@v0.119.0",
            "version": "0.119.0",
            "db": {
                "uri": "https://grype.anchore.io/databases/v6/db.tar.zst?checksum=sha256%3A0",
                "version": "2026-11-24T22:26:46+00:00",
            },
            "result": {"matches": MATCHES, "notListed": 0},
        },
        "metadata": {"scanStartedOn": "2026-11-24T12:00:00+00:00", "scanFinishedOn": "2026-11-24T12:01:00+00:00"},
    }
    assert scan_record.summary(record) == "2 known vulnerabilities on 2026-11-24, by the database of 2026-11-24"
    # Where a stack has its own database is nobody's business, and a Grype that was built by hand has no version.
    own = scan_record.predicate(replace(scan, version="[not provided]"), policy(database=str(scanner.archive)))
    assert own["scanner"]["db"]["uri"] == ""
    assert own["scanner"]["uri"] == "pkg:golang/github.com/anchore/grype"
    assert str(scanner.archive) not in json.dumps(own)


@pytest.mark.usefixtures("scanner")
def test_newest_record_is_grypes() -> None:
    ours = scan_record.predicate(grype.scan(REF, policy(), None, ROOT), policy())
    later = {**ours, "metadata": {**ours["metadata"], "scanFinishedOn": "2027-01-01T00:00:00+00:00"}}
    trivy = {  # as pkg/report/predicate/vuln.go of aquasecurity/trivy at 0add976 writes it
        "invocation": {"parameters": None, "uri": "", "event_id": "", "builder.id": ""},
        "scanner": {
            "uri": "pkg:github/aquasecurity/trivy@0.60.0",
            "version": "0.60.0",
            "db": {"uri": "", "version": ""},
            "result": {"SchemaVersion": 2, "Results": []},
        },
        "metadata": {"scanStartedOn": "2028-01-01T00:00:00Z", "scanFinishedOn": "2028-01-01T00:00:00Z"},
    }
    assert scan_record.newest([trivy, ours, later, {"scanner": None}, {}]) == later
    assert scan_record.newest([trivy]) is None


def test_record_of_many_matches_counts_the_rest(scanner: vulnerability_scanner.Scanner) -> None:
    many = json.loads(json.dumps(vulnerability_scanner.REPORT))
    many["matches"] = many["matches"] * 2501
    scanner.report(json.dumps(many))
    record = scan_record.predicate(grype.scan(REF, policy(), None, ROOT), policy())
    result = record["scanner"]["result"]
    assert (len(result["matches"]), result["notListed"]) == (5000, 2)
    assert scan_record.summary(record).startswith("5002 known vulnerabilities on ")


def test_scan_imports_an_archive_once(scanner: vulnerability_scanner.Scanner) -> None:
    for _ in range(2):
        grype.scan(REF, policy(database=str(scanner.archive)), None, ROOT)
    assert [call[:2] for call in scanner.calls()].count(["db", "import"]) == 1
    scanner.archive.write_text("a newer database")
    grype.scan(REF, policy(database=str(scanner.archive)), None, ROOT)
    assert [call[:2] for call in scanner.calls()].count(["db", "import"]) == 2
    assert "update-url" not in scanner.configuration()["db"]


def test_scan_takes_only_its_own_configuration(scanner: vulnerability_scanner.Scanner) -> None:
    grype.scan(REF, policy(database="https://mirror.example/latest.json", maxAge=9), None, ROOT)
    update, scan = scanner.calls()
    assert update[:2] == ["db", "update"]
    assert scan[0] == f"registry:{REF}"
    for call in (update, scan):
        assert call[call.index("--config") + 1].endswith("/grype.yaml")
    settings = scanner.configuration()["db"]
    assert settings["update-url"] == "https://mirror.example/latest.json"
    assert (settings["max-allowed-built-age"], settings["auto-update"]) == ("216h", False)


def test_scan_without_network_takes_the_last_database(scanner: vulnerability_scanner.Scanner) -> None:
    scanner.fail("update", "[0000] ERROR unable to update: no route")
    with pytest.raises(
        SlipwayError, match=r"^slipway:vulnerabilities\.database: grype db: unable to update: no route$"
    ):
        grype.scan(REF, policy(), None, ROOT)
    scanner.fail(None)
    grype.scan(REF, policy(), None, ROOT)
    assert "update-url" not in scanner.configuration()["db"]  # it has one of its own
    scanner.fail("update", "[0000] ERROR unable to update: no route")
    assert grype.scan(REF, policy(), None, ROOT).vulnerabilities


def test_scan_refuses_an_old_database(scanner: vulnerability_scanner.Scanner) -> None:
    scanner.fail("registry", "[0000] ERROR db was built 4 weeks ago (max allowed age is 5 days)")
    with pytest.raises(SlipwayError) as refusal:
        grype.scan(REF, policy(), None, ROOT)
    assert str(refusal.value).endswith("or raise slipway:vulnerabilities.maxAge")
    assert "ERROR" not in str(refusal.value)


def test_failed_scan_of_an_archive_names_no_file(scanner: vulnerability_scanner.Scanner, tmp_path: Path) -> None:
    """The file is gone when somebody reads the line."""
    archive = tmp_path / "image.tar"
    archive.touch()
    scanner.fail("docker-archive", "[0000] ERROR no space left on device")
    with pytest.raises(SlipwayError) as refusal:
        grype.scan_archive("r.example/x:1", archive, policy(), ROOT)
    assert str(refusal.value) == ("r.example/x:1: grype on the image that the engine saved: no space left on device")


def test_scan_names_an_archive_that_is_gone(scanner: vulnerability_scanner.Scanner) -> None:
    scanner.archive.unlink()
    with pytest.raises(SlipwayError, match=r"^slipway:vulnerabilities\.database: '.+': no such file; give an archive"):
        grype.scan(REF, policy(database=str(scanner.archive)), None, ROOT)


@pytest.mark.parametrize("report", ["", "[]", "{}", json.dumps({"matches": [{}], "descriptor": {}})])
def test_scan_refuses_a_report_it_cannot_read(scanner: vulnerability_scanner.Scanner, report: str) -> None:
    scanner.report(report)
    with pytest.raises(SlipwayError, match="its report cannot be read"):
        grype.scan(REF, policy(), None, ROOT)
