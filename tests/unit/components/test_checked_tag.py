"""The tag of an image that passed its checks, and in which everything loads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from components.supply_chain.attestations import AttestLoading, AttestScan
from components.supply_chain.checked_tag import TagChecked
from components.supply_chain.gates import loading_gate
from containers.errors import SlipwayError
from containers.evidence import cosign, loading_evidence
from containers.evidence.vulnerabilities import grype
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from tests.fakes import vulnerability_scanner
from tests.fakes.registry import INDEX, MANIFEST, Registry, serve, skip_retry_waits
from tests.fakes.vulnerability_scanner import Scanner
from tests.helpers.elf_writer import LOADER, elf, fatbin, loader
from tests.helpers.layers import files_archive
from tests.helpers.read_here import read_here

PROGRAM = elf(needed=["libgone.so.1"], interpreter=LOADER)


@pytest.fixture(autouse=True)
def _read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read images in this process. `tests/programs` shows that another one may."""
    read_here(loading_gate, monkeypatch)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with one image that has no other tag."""
    skip_retry_waits(monkeypatch)
    with serve() as served:
        served.manifest("a/image:unchecked--x1", MANIFEST, {"layers": []})
        yield served


def inputs(registry: Registry, checked: str | None = None) -> dict[str, Any]:
    digest = str(registry.digests["a/image:unchecked--x1"])
    ref = f"{registry.address}/a/image@{digest}"
    return {"ref": ref, "tag": "x1", "checked": checked or digest.removeprefix("sha256:"), "name": None}


def test_checked_image_gets_its_tag(registry: Registry) -> None:
    created = TagChecked().create(inputs(registry))
    assert created.outs is not None
    assert created.outs["name"] == f"{registry.address}/a/image:x1"
    assert registry.digests["a/image:x1"] == registry.digests["a/image:unchecked--x1"]


def test_tag_of_the_same_image_is_not_set_again(registry: Registry) -> None:
    TagChecked().create(inputs(registry))
    registry.requests.clear()
    TagChecked().create(inputs(registry))
    assert "PUT" not in repr(registry.requests)


def test_image_other_than_the_checked_one_gets_no_tag(registry: Registry) -> None:
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(inputs(registry, "0" * 64))
    assert "\n" not in str(refusal.value)
    assert f"not tagged x1, because the last checks were those of sha256:{'0' * 64}; " in str(refusal.value)
    assert not registry.requests


def test_changed_checks_of_tagged_image_are_no_change(registry: Registry) -> None:
    state = TagChecked().create(inputs(registry)).outs
    assert state is not None
    assert not TagChecked().diff("", state, inputs(registry)).changes
    assert TagChecked().diff("", state, inputs(registry) | {"tag": "x2"}).changes


def inspected(registry: Registry, files: Mapping[str, bytes], *exceptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the inputs for an image with these files and glibc's loader."""
    ref = registry.image("a/loads:unchecked--x1", [files_archive({LOADER.lstrip("/"): loader(), **files})])
    checked = ref.rpartition(":")[2]
    return {"ref": ref, "tag": "x1", "checked": checked, "exceptions": [*exceptions], "name": None}


def test_image_without_an_asked_architecture_gets_no_tag(registry: Registry) -> None:
    library = elf("_C.so", gpu=fatbin((2, 80, 0)))
    row = {"files": "/opt/x/_C.so", "missing": "9.0", "reason": "it runs on A100 alone"}
    given = inspected(registry, {"opt/x/_C.so": library}) | {"compiled": {"/opt/x/*": "8.0 9.0"}}
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given)
    fault = "/opt/x/_C.so: missing code for 9.0: it has sm_80; /opt/x/* is compiled for 8.0 9.0"
    assert str(refusal.value).split("\n")[1:] == [f"  {fault}"]
    TagChecked().create(given | {"exceptions": [row]})
    TagChecked().create(given | {"compiled": {"/opt/x/*": "8.0 8.6"}})


def test_faults_beyond_the_first_are_counted(registry: Registry) -> None:
    given = inspected(registry, {f"opt/{number:02}": PROGRAM for number in range(32)})
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given)
    lines = str(refusal.value).split("\n")
    assert len(lines) == 32
    assert lines[-1] == f"  and 2 more; `slipway inspect {given['ref']}` lists them"


@pytest.mark.parametrize(
    ("files", "missing", "tagged"),
    [
        ("/opt/a", "*", True),
        ("*", "libgone.so.*", True),
        ("/opt/b", "*", False),
        ("/opt/a", "libother.so.1", False),
    ],
)
def test_exception_names_file_and_library(registry: Registry, files: str, missing: str, *, tagged: bool) -> None:
    row = {"files": files, "missing": missing, "reason": "the host mounts it"}
    given = inspected(registry, {"opt/a": PROGRAM}, row)
    if tagged:
        TagChecked().create(given)
    else:
        with pytest.raises(SlipwayError, match="not tagged because of a fault"):
            TagChecked().create(given)
    assert ("a/loads:x1" in registry.digests) == tagged


def test_tag_of_an_image_that_loads_has_evidence(registry: Registry) -> None:
    row = {"files": "/opt/a", "missing": "libgone.so.*", "reason": "the host mounts it"}
    given = inspected(registry, {"opt/a": PROGRAM, "opt/b": elf(interpreter=LOADER)}, row)
    outs = TagChecked().create(given).outs
    assert outs is not None
    evidence = outs["loading"]
    assert evidence["result"] == "PASSED"
    assert evidence["exceptions"] == [row]
    (fault,) = evidence["faults"]
    assert fault == {
        "file": "/opt/a",
        "names": ["libgone.so.1"],
        "fault": "/opt/a: missing libgone.so.1: not in the image",
    }
    (image,) = evidence["images"]
    assert (image["digest"], image["platform"]) == (given["ref"].partition("@")[2], "linux/amd64")
    assert loading_evidence.counting(evidence, []) == ["/opt/a: missing libgone.so.1: not in the image"]
    assert re.fullmatch(
        r"everything loads: \d files resolved, 1 of its faults excepted, inspected 20\S+",
        loading_evidence.summary(evidence),
    )
    # An unchanged tag of another state is evidence too; an image that is not inspected has none.
    again = TagChecked().create(given).outs
    assert again is not None
    assert {**again["loading"], "inspected": ""} == {**evidence, "inspected": ""}
    assert (TagChecked().create(given | {"exceptions": None}).outs or {})["loading"] == {}


def test_attested_inspection_is_that_of_the_tag(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    attested: list[Any] = []

    def attest(ref: str, kind: str, predicate: Mapping[str, Any], *_: Any) -> str:
        attested.append((ref, kind, predicate))
        return "att"

    monkeypatch.setattr(cosign, "attest", attest)
    given = inspected(registry, {"opt/a": PROGRAM, "opt/_C.so": elf("_C.so", gpu=fatbin((2, 80, 0)))})
    key = {"key": "cosign.key", "publicKey": "awskms:///alias/x"}
    props = {
        "ref": given["ref"],
        "signing": key,
        "evidence": {"result": "PASSED"},
        "exceptions": [],
        "compiled": {"/opt/_C.so": "9.0"},
    }
    AttestLoading().create(props)
    assert attested == [(given["ref"], "loading", {"result": "PASSED"})]
    # A tag that was set before there was a gate has no evidence: the image is inspected, and what is wrong with it is attested.
    outs = AttestLoading().create({**props, "evidence": None}).outs
    assert outs is not None
    assert outs["result"] == "FAILED"
    assert {fault["file"] for fault in attested[1][2]["faults"]} == {"/opt/a", "/opt/_C.so"}
    assert not AttestLoading().diff("", outs, {**props, "evidence": {"result": "PASSED", "inspected": "x"}}).changes


def test_tag_that_was_set_by_hand_proves_nothing(registry: Registry) -> None:
    given = inspected(registry, {"opt/a": PROGRAM})
    registry.digests["a/loads:x1"] = registry.digests["a/loads:unchecked--x1"]
    with pytest.raises(SlipwayError, match="not tagged because of a fault"):
        TagChecked().create(given)


def test_exception_for_one_symbol_hides_no_other(registry: Registry) -> None:
    program = elf(interpreter=LOADER, undefined=["mounted_one", "mounted_two", "forgotten"])
    row = {"files": "/opt/a", "missing": "mounted_*", "reason": "the host mounts it"}
    with pytest.raises(SlipwayError, match="missing symbol mounted_one and 2 more"):
        TagChecked().create(inspected(registry, {"opt/a": program}, row))
    TagChecked().create(inspected(registry, {"opt/a": program}, row, row | {"missing": "*"}))


def test_exception_for_a_word_of_the_fault_hides_nothing(registry: Registry) -> None:
    row = {"files": "/opt/a", "missing": "misses", "reason": "a word of each line"}
    with pytest.raises(SlipwayError, match="not tagged because of a fault"):
        TagChecked().create(inspected(registry, {"opt/a": PROGRAM}, row))


def test_each_image_of_an_index_is_inspected(registry: Registry) -> None:
    sound = inspected(registry, {})["ref"].rpartition("@")[2]
    faulty = inspected(registry, {"opt/a": PROGRAM})["ref"].rpartition("@")[2]
    entries = [
        {"digest": digest, "mediaType": MANIFEST, "platform": {"os": "linux", "architecture": machine}}
        for digest, machine in ((sound, "amd64"), (faulty, "arm64"))
    ]
    registry.manifest("a/loads:both", INDEX, {"manifests": entries})
    digest = str(registry.digests["a/loads:both"])
    given = {"ref": f"{registry.address}/a/loads@{digest}", "tag": "x1", "checked": digest[7:], "exceptions": []}
    with pytest.raises(SlipwayError, match="/opt/a: "):
        TagChecked().create(given | {"name": None})
    assert "a/loads:x1" not in registry.digests


@pytest.mark.parametrize(("layer", "message"), [(b"no archive" * 99, "malformed"), (None, "404")])
def test_image_with_an_unreadable_layer_gets_no_tag(registry: Registry, layer: bytes | None, message: str) -> None:
    given = inspected(registry, {})
    broken = registry.image("a/loads:unchecked--x1", [layer or b"gone"])
    if layer is None:
        registry.blobs.clear()
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given | {"ref": broken, "checked": broken.rpartition(":")[2]})
    assert "\n" not in str(refusal.value), message
    assert "a/loads:x1" not in registry.digests


def test_gate_that_is_off_reads_no_layer(registry: Registry) -> None:
    TagChecked().create(inspected(registry, {"opt/a": PROGRAM}) | {"exceptions": None})
    assert "a/loads:x1" in registry.digests
    assert "/blobs/" not in repr(registry.requests)


def test_changed_exceptions_are_no_change(registry: Registry) -> None:
    given = inspected(registry, {})
    state = TagChecked().create(given).outs
    assert state is not None
    row = {"files": "*", "missing": "*", "reason": "none"}
    assert not TagChecked().diff("", state, given | {"exceptions": [row]}).changes


def scanned(registry: Registry, *exceptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the inputs for an image that is scanned and not inspected."""
    policy = VulnerabilitiesConfig.model_validate({"exceptions": exceptions})
    given = inspected(registry, {}) | {"exceptions": None}
    return given | {"vulnerabilities": policy.model_dump(mode="json", by_alias=True)}


@pytest.fixture
def scanner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    """A stand-in of Grype, which finds a critical vulnerability in each image."""
    monkeypatch.setattr(grype, "_CACHE", tmp_path / "cache")
    return vulnerability_scanner.install(tmp_path, monkeypatch)


def test_vulnerable_image_gets_no_tag(registry: Registry, scanner: Scanner) -> None:
    given = scanned(registry)
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given)
    lines = str(refusal.value).split("\n")
    assert lines[0].startswith(
        f"{given['ref']}: not tagged because of a vulnerability, by the database of 2026-11-24; "
    )
    assert "slipway:vulnerabilities.exceptions" in lines[0]
    assert lines[1:] == ["  CVE-2026-0001 (critical): apt 2.6.2, fixed in 99"]
    assert "a/loads:x1" not in registry.digests
    assert scanner.calls()[-1][0] == f"registry:{given['ref']}"


def test_excepted_vulnerability_stops_no_tag(registry: Registry, scanner: Scanner) -> None:
    row = {"id": "CVE-2026-0001", "reason": "apt is not run", "until": "9999-12-31"}
    TagChecked().create(scanned(registry, row))
    assert "a/loads:x1" in registry.digests
    assert scanner.calls()


def test_attested_scan_is_that_of_the_tag(
    registry: Registry, scanner: Scanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    attested: list[Any] = []

    def attest(ref: str, kind: str, predicate: Mapping[str, Any], *_: Any) -> str:
        attested.append((ref, kind, predicate))
        return "att"

    monkeypatch.setattr(cosign, "attest", attest)
    row = {"id": "CVE-2026-0001", "reason": "apt is not run", "until": "9999-12-31"}
    given = scanned(registry, row)
    scan = (TagChecked().create(given).outs or {})["scan"]
    assert [match["vulnerability"]["id"] for match in scan["scanner"]["result"]["matches"]] == [
        "CVE-2026-0001",
        "CVE-2026-0002",
    ]
    calls = len(scanner.calls())
    key = {"key": "cosign.key", "publicKey": "awskms:///alias/x"}
    props = {"ref": given["ref"], "signing": key, "evidence": scan, "policy": given["vulnerabilities"]}
    outs = AttestScan().create(props).outs
    assert outs == {"ref": given["ref"], "signing": key, "attestation": "att"}
    assert attested == [(given["ref"], "scan", scan)]
    assert len(scanner.calls()) == calls
    # Where the image had its tag already it was not scanned: it is now, and what is wrong with it is attested.
    assert (TagChecked().create(given).outs or {})["scan"] == {}
    strict = VulnerabilitiesConfig().model_dump(mode="json", by_alias=True)
    AttestScan().create({**props, "evidence": {}, "policy": strict})
    record = attested[1][2]
    assert record["scanner"] == scan["scanner"]
    assert record["invocation"]["parameters"]["exceptions"] == []
    assert not AttestScan().diff("", outs, {**props, "policy": strict}).changes


def test_image_with_its_tag_is_not_scanned_again(registry: Registry, scanner: Scanner) -> None:
    given = scanned(registry)
    registry.digests["a/loads:x1"] = registry.digests["a/loads:unchecked--x1"]
    TagChecked().create(given)
    assert not (scanner.folder / "calls").exists()


@pytest.mark.parametrize(("page", "tagged"), [(65536.0, False), (None, True)])
def test_file_for_small_pages_gets_no_tag_for_grace(registry: Registry, page: float | None, tagged: bool) -> None:
    name = "ld-linux-aarch64.so.1"
    files = {
        f"lib/{name}": elf(name, machine=183, data=b"\0/lib64/\0/usr/lib64/\0"),
        "opt/lib/small.so": elf("small.so", machine=183, shifted=0x1000),
    }
    ref = registry.image("a/loads:unchecked--x1", [files_archive(files)], platform=("linux", "arm64"))
    given: dict[str, Any] = {"ref": ref, "tag": "x1", "checked": ref.rpartition(":")[2], "exceptions": []}
    given |= {"question": {"page": page}} if page else {}
    if tagged:
        TagChecked().create(given)
        assert "a/loads:x1" in registry.digests
        return
    with pytest.raises(SlipwayError, match="small.so: cannot be mapped: it is for pages of 4096 bytes"):
        TagChecked().create(given)
    assert "a/loads:x1" not in registry.digests


def test_contradicting_requirements_are_a_fault_by_choice(registry: Registry) -> None:
    site = "opt/venv/lib/python3.11/site-packages"
    lines = "Metadata-Version: 2.4\nName: {}\nVersion: {}\n{}"
    files = {
        f"{site}/torchvision-0.19.0.dist-info/METADATA": lines.format(
            "torchvision", "0.19.0", "Requires-Dist: torch ==2.4.0\n"
        ).encode(),
        f"{site}/torch-2.5.1.dist-info/METADATA": lines.format("torch", "2.5.1", "").encode(),
    }
    given = {**inspected(registry, files), "question": {"requirements": True}}
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given)
    assert "/opt/venv: torchvision 0.19.0 requires torch==2.4.0: it has torch 2.5.1" in str(refusal.value)
    assert "a/loads:x1" not in registry.digests
    row = {"files": "/opt/venv", "missing": "torch*", "reason": "torchvision is not imported"}
    TagChecked().create({**given, "exceptions": [row]})
    assert "a/loads:x1" in registry.digests
    del registry.digests["a/loads:x1"]
    TagChecked().create(inspected(registry, files))
    assert "a/loads:x1" in registry.digests, "reported, and no fault"
