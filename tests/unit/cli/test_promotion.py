"""``slipway evidence`` and ``slipway promote``: a tag moves only if the evidence that is required verifies."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.diff import stack_diff
from cli.promotion import gpu_evidence, newest_evidence, promotion, verified_digest
from cli.warm import warm_image
from cli.warm.warm_record import WarmRecord
from containers.errors import SlipwayError
from containers.evidence import cosign, gpu_report
from containers.evidence.vulnerabilities import grype
from containers.image.registry_image import fetch
from containers.registry.client import Repository
from tests.fakes import vulnerability_scanner
from tests.fakes.registry import INDEX, MANIFEST, Registry, serve, skip_retry_waits
from tests.helpers import gpu_reports
from tests.helpers.sample_repository import STACK, Checkout, make

KEY = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/0"
NOW = datetime(2026, 11, 26, tzinfo=UTC)
PLATFORM = {"digest": "", "platform": "linux/amd64", "loader": "", "resolved": 9, "driver": None}
LOADS = {
    "result": "PASSED",
    "inspected": "2026-11-25T01:00:00+00:00",
    "images": [PLATFORM],
    "faults": [],
    "notListed": 0,
    "exceptions": [],
}


def provenance(builder: str) -> dict[str, Any]:
    """Return provenance of a build, as far as a policy reads it."""
    source = {"uri": "git+https://git.example/acme/images", "digest": {"sha1": "a" * 40}}
    return {
        "buildDefinition": {"externalParameters": {"configSource": source}, "internalParameters": {}},
        "runDetails": {"builder": {"id": builder}, "metadata": {"finishedOn": "2026-11-24T00:00:00Z"}},
    }


NOT_INSPECTED = (
    "cosign verify-attestation: no matching attestations; `slipway up` inspects images that have checks or are in "
    "slipway:images, unless slipway:inspection.gate is false; or set slipway:promotion.loading: false"
)


class Evidence:
    """A stand-in of cosign, which keeps what was attested by reference and kind, and of the tags of Pulumi's stack."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self.unsigned: set[str] = set()
        self.stated: dict[str, Mapping[str, str] | None] = {}
        self.noted: dict[str, datetime] = {}

    def verify(self, ref: str, _: Any, __: Any, annotations: Mapping[str, str] | None = None) -> None:
        self.stated[ref] = annotations
        if ref in self.unsigned:
            raise cosign.Unsigned(f"{ref}: cosign verify: no signatures found")

    def every_attested(self, ref: str, kind: str, *_: Any) -> list[Mapping[str, Any]]:
        if not self.kept.get((ref, kind)):
            raise cosign.Unsigned(f"{ref}: {kind}: cosign verify-attestation: no matching attestations")
        return self.kept[ref, kind]

    def attested(self, ref: str, kind: str, *_: Any) -> Mapping[str, Any]:
        return self.every_attested(ref, kind)[-1]

    def attest(self, ref: str, kind: str, predicate: Mapping[str, Any], *_: Any) -> str:
        self.kept[ref, kind] = [predicate]
        return "att"


class Stack:
    """A stack whose image ``torch`` is published, and its evidence."""

    def __init__(self, registry: Registry, checkout: Checkout, evidence: Evidence) -> None:
        self.registry = registry
        self.root = checkout.root
        self.evidence = evidence
        self.refs = [self._push(day) for day in (23, 24)]
        self.published = self.refs[-1]
        self._checkout = checkout
        self.configure()

    def _push(self, day: int, architecture: str = "amd64") -> str:
        config = {"os": "linux", "architecture": architecture, "created": f"2026-11-{day}T12:00:00Z"}
        body = json.dumps({**config, "rootfs": {"diff_ids": []}}).encode()
        manifest = {"config": {"digest": self.registry.blob(body), "size": len(body)}, "layers": []}
        return f"{self.registry.address}/acme/torch@{self.registry.manifest('acme/torch:x', MANIFEST, manifest)}"

    def push_index(self, *days: int) -> list[str]:
        """Publish an index of images for two platforms, built on these days; return their references."""
        parts = [self._push(day, name) for day, name in zip(days, ("amd64", "arm64"), strict=True)]
        platforms = [{"os": "linux", "architecture": name} for name in ("amd64", "arm64")]
        self.published = self.index(zip(parts, platforms, strict=True))
        return parts

    def index(self, entries: Iterable[tuple[str, Mapping[str, str]]]) -> str:
        """Push an index of images by platform; return its reference."""
        listed = [
            {"mediaType": MANIFEST, "digest": ref.partition("@")[2], "platform": platform} for ref, platform in entries
        ]
        digest = self.registry.manifest("acme/torch:x", INDEX, {"mediaType": INDEX, "manifests": listed})
        return f"{self.registry.address}/acme/torch@{digest}"

    def configure(self, **promoted: Any) -> None:
        keys = {
            "flavor": "local",
            "registry": {"kind": "generic", "repository": f"{self.registry.address}/acme"},
            "signing": {"key": KEY, "sbom": False, "provenance": False},
            **promoted.pop("keys", {}),
            "promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5", "gpus": 2}, **promoted},
        }
        self._checkout.write(STACK, json.dumps({"config": {f"slipway:{key}": value for key, value in keys.items()}}))

    def loads(self, ref: str = "", **changes: Any) -> None:
        self.evidence.kept[ref or self.published, "loading"] = [{**LOADS, **changes}]

    def report(self, name: str, ref: str = "", **changes: Any) -> dict[str, Any]:
        text = gpu_reports.text(name, **{"image": ref or self.published, **changes})
        return gpu_report.parse(text, "report").predicate()

    def checked(self, *reports: Mapping[str, Any], ref: str = "") -> None:
        self.evidence.kept[ref or self.published, "gpu"] = list(reports)

    def promote(self, tag: str = "stable", digest: str | None = None, now: datetime = NOW) -> str:
        return "\n".join(promotion.promote("local", "torch", tag, self.root, digest, now))

    def refused(self, **arguments: Any) -> list[str]:
        before = self.tagged
        with pytest.raises(SlipwayError) as refusal:
            self.promote(**arguments)
        assert self.tagged == before
        return str(refusal.value).splitlines()

    @property
    def tagged(self) -> str | int | None:
        return self.registry.digests.get("acme/torch:stable")

    def attach(self, text: str, **arguments: Any) -> str:
        (self.root / "report").write_text(text)
        return gpu_evidence.attach("local", "torch", str(self.root / "report"), self.root, **arguments)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout for all tests, each of which writes the stack's file anew."""
    return make(tmp_path_factory.mktemp("repo"), program=False)


@pytest.fixture
def stack(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A published image that loads, and whose GPU checks passed."""
    skip_retry_waits(monkeypatch)
    evidence = Evidence()
    for name in ("verify", "attested", "every_attested", "attest"):
        monkeypatch.setattr(cosign, name, getattr(evidence, name))
    monkeypatch.setattr(cosign, "check", lambda _: None)
    monkeypatch.setattr(newest_evidence, "noted", lambda _stack, _image, digest, _root: evidence.noted.get(digest))
    monkeypatch.setattr(
        newest_evidence, "note", lambda _stack, _image, digest, time, _root: evidence.noted.update({digest: time})
    )
    with serve() as registry:
        stack = Stack(registry, checkout, evidence)
        built = {"images": {"torch": {"ref": stack.published, "tag": "1-base"}}}
        monkeypatch.setattr(stack_diff, "outputs", lambda *_: built)
        stack.loads()
        stack.checked(stack.report("good"))
        yield stack


def test_promotion_moves_tag_to_the_published_image(stack: Stack) -> None:
    line = stack.promote()
    digest = stack.published.partition("@")[2]
    assert line == f"torch: {stack.registry.address}/acme/torch:stable names {digest}; before: nothing"
    assert stack.tagged == digest
    assert stack.evidence.stated == {stack.published: {"tag": "1-base"}}
    assert stack.promote().endswith(f"names {digest} already, and its evidence verifies")


def test_promotion_refuses_planted_measurement(stack: Stack) -> None:
    stack.checked(stack.report("planted"))
    header, line = stack.refused()
    assert header == "torch: stable is not set:"
    assert line == (
        f"  {stack.published}: gpu: the GPU checks failed: NCCL is slow: 27 GB/s bus bandwidth over 2 GPUs; one copies "
        "to another at 379 GB/s"
    )


def test_promotion_has_a_line_for_each_thing(stack: Stack) -> None:
    stack.evidence.unsigned.add(stack.published)
    fault = {"file": "/opt/a", "names": ["libgone.so.1"], "fault": "/opt/a: missing libgone.so.1"}
    stack.loads(faults=[fault, {**fault, "file": "/opt/b", "fault": "/opt/b: missing libgone.so.1"}])
    stack.checked()
    assert [line.removeprefix(f"  {stack.published}: ") for line in stack.refused()[1:]] == [
        "cosign verify: no signatures found",
        "loading: /opt/a: missing libgone.so.1",
        "loading: /opt/b: missing libgone.so.1",
        "gpu: cosign verify-attestation: no matching attestations",
    ]


def test_promotion_judges_faults_by_exceptions_of_today(stack: Stack) -> None:
    row = {"files": "/opt/a", "missing": "libgone.so.*", "reason": "the host mounts it"}
    fault = {"file": "/opt/a", "names": ["libgone.so.1"], "fault": "/opt/a: missing libgone.so.1"}
    stack.loads(faults=[fault], exceptions=[row])
    assert stack.refused()[1:] == [f"  {stack.published}: loading: /opt/a: missing libgone.so.1"]
    stack.configure(keys={"inspection": {"exceptions": [row]}})
    assert "names sha256:" in stack.promote()


@pytest.mark.parametrize("changes", [{"faults": [{}]}, {"faults": 7}, {"notListed": {}, "faults": None}])
def test_promotion_refuses_another_programs_evidence(stack: Stack, changes: dict[str, Any]) -> None:
    stack.loads(**changes)
    (line,) = stack.refused()[1:]
    assert line.startswith(f"  {stack.published}: loading: what is attested has another shape than `slipway` attests")


def test_promotion_refuses_old_evidence(stack: Stack) -> None:
    stack.configure(maxAgeDays=7)
    assert "names sha256:" in stack.promote(now=NOW + timedelta(days=6))
    assert stack.refused(now=NOW + timedelta(days=8))[1:] == [
        f"  {stack.published}: loading: inspected 8 days ago; at most 7 are allowed",
        f"  {stack.published}: gpu: checked 8 days ago; at most 7 are allowed",
    ]
    assert stack.refused(now=NOW - timedelta(days=9))[1:] == [
        f"  {stack.published}: loading: inspected at '2026-11-25T01:00:00+00:00', so its age is unknown",
        f"  {stack.published}: gpu: checked at '2026-11-25T02:05:55+00:00', so its age is unknown",
    ]


def test_older_report_beside_a_newer_one_does_not_count(stack: Stack) -> None:
    stack.checked(stack.report("good"), stack.report("planted"))
    assert "the GPU checks failed" in stack.refused()[1]
    stack.checked(stack.report("planted"), stack.report("good"))
    assert "the GPU checks failed" in stack.refused()[1]


def test_older_report_in_place_of_a_newer_one_is_refused(stack: Stack) -> None:
    stack.attach(gpu_reports.text("good", image=stack.published))
    replayed = stack.evidence.kept[stack.published, "gpu"]
    assert "names sha256:" in stack.promote()
    stack.attach(gpu_reports.text("planted", image=stack.published))
    stack.evidence.kept[stack.published, "gpu"] = replayed
    (line,) = stack.refused()[1:]
    assert line.endswith(
        "the report of 2026-11-25T02:05:55+00:00 is not the newest: one of 2026-11-25T02:06:12+00:00 was attested, and "
        "is not there any more"
    )


def test_report_of_another_image_is_refused(stack: Stack) -> None:
    stack.checked(stack.report("good", stack.refs[0]))
    other = stack.refs[0].partition("@")[2]
    assert stack.refused()[1:] == [f"  {stack.published}: gpu: the report is of another image, {other}"]


@pytest.mark.parametrize("image", ["", "registry.example/acme/torch:1-base"])
def test_report_that_names_no_image_promotes_none(stack: Stack, image: str) -> None:
    nameless = gpu_report.parse(gpu_reports.text("good", image=image), "report").predicate()
    refusal = [f"  {stack.published}: gpu: the report is of another image, which it does not name"]
    stack.checked(nameless)
    assert stack.refused()[1:] == refusal
    stack.checked({**stack.report("good"), "others": [nameless]})
    assert stack.refused()[1:] == refusal


@pytest.mark.parametrize("others", [["planted"], ["good", "planted"], ["planted", "good"]])
def test_failed_report_of_another_node_promotes_none(stack: Stack, others: list[str]) -> None:
    """The first node passed; what another one wrote into the same log, before or after, did not."""
    for names in (["good", *others], [*others, "good"]):
        log = "\n".join(gpu_reports.text(name, image=stack.published, node=name) for name in names)
        assert "attested: FAILED" in stack.attach(log)
        assert [line for line in stack.refused()[1:] if "node planted: the GPU checks failed" in line]


def test_report_of_a_node_of_another_image_is_refused(stack: Stack) -> None:
    log = "\n".join(gpu_reports.text("good", image=ref) for ref in (stack.refs[0], stack.published))
    with pytest.raises(SlipwayError, match=r"the report is of sha256:[0-9a-f]{64}, and torch is sha256:"):
        stack.attach(log)


def test_policy_is_held_for_each_platforms_image(stack: Stack, parts: list[str]) -> None:
    """Each image of an index is what some machine runs: one that another builder built is not promoted."""
    stack.configure(keys={"signing": {"key": KEY, "sbom": False, "policy": {"builder": "urn:ours"}}})
    builders = {stack.published: "urn:ours", parts[0]: "urn:ours", parts[1]: "urn:other"}
    for ref, builder in builders.items():
        stack.evidence.kept[ref, "provenance"] = [provenance(builder)]
    policy = f"{parts[1]}: policy: builder is 'urn:other', but must be 'urn:ours'"
    assert stack.refused()[1:] == [f"  {policy}"]
    stack.evidence.kept[parts[1], "provenance"] = [provenance("urn:ours")]
    assert "names sha256:" in stack.promote()


def test_promotion_without_gpu_checks_asks_for_none(stack: Stack) -> None:
    stack.configure(gpuChecks=None)
    stack.checked()
    assert "names sha256:" in stack.promote()


def test_vulnerable_image_is_not_promoted(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grype, "_CACHE", tmp_path / "cache")
    vulnerability_scanner.install(tmp_path, monkeypatch)
    stack.configure(keys={"vulnerabilities": {}})
    assert stack.refused()[1:] == [
        f"  {stack.published}: vulnerability: CVE-2026-0001 (critical): apt 2.6.2, fixed in 99"
    ]


@pytest.fixture
def parts(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images for two platforms of a published index, each of which loads; the GPU checks passed on the index."""
    refs = stack.push_index(24, 25)
    platforms = {
        f"linux/{name}": {"ref": ref, "tag": f"1-{name}"} for name, ref in zip(("amd64", "arm64"), refs, strict=True)
    }
    built = {"images": {"torch": {"ref": stack.published, "tag": "1-base", "platforms": platforms}}}
    monkeypatch.setattr(stack_diff, "outputs", lambda *_: built)
    for ref in refs:
        stack.loads(ref)
    stack.checked(stack.report("good"))
    return refs


def test_index_is_promoted_on_the_evidence_of_each_part(stack: Stack, parts: list[str]) -> None:
    assert len({*parts, stack.published}) == 3
    line = stack.promote()
    digest = stack.published.partition("@")[2]
    assert line == f"torch: {stack.registry.address}/acme/torch:stable names {digest}; before: nothing"
    assert stack.registry.manifests[digest][0] == INDEX
    assert f"PUT /v2/acme/torch/manifests/stable {INDEX}" in stack.registry.requests
    assert stack.evidence.stated == {
        stack.published: {"tag": "1-base"},
        parts[0]: {"tag": "1-amd64"},
        parts[1]: {"tag": "1-arm64"},
    }


def test_index_with_a_part_that_lacks_evidence_is_refused(stack: Stack, parts: list[str]) -> None:
    fault = {"file": "/opt/a", "names": ["libgone.so.1"], "fault": "/opt/a: missing libgone.so.1"}
    stack.loads(parts[0], faults=[fault])
    stack.evidence.kept.pop((parts[1], "loading"))
    stack.evidence.unsigned.add(parts[1])
    stack.checked(stack.report("planted"))
    assert stack.refused() == [
        "torch: stable is not set:",
        f"  {parts[0]}: loading: /opt/a: missing libgone.so.1",
        f"  {parts[1]}: cosign verify: no signatures found",
        f"  {parts[1]}: loading: {NOT_INSPECTED}",
        (
            f"  {stack.published}: gpu: the GPU checks failed: NCCL is slow: 27 GB/s bus bandwidth over 2 GPUs; one "
            "copies to another at 379 GB/s"
        ),
    ]


def test_evidence_of_the_index_alone_does_not_count(stack: Stack, parts: list[str]) -> None:
    for ref in parts:
        stack.evidence.kept.pop((ref, "loading"))
    stack.loads(stack.published)
    assert [line.split(": ")[0].strip() for line in stack.refused()[1:]] == parts


def test_report_of_one_part_is_none_of_the_index(stack: Stack, parts: list[str]) -> None:
    stack.checked(stack.report("good", parts[0]))
    assert stack.refused()[1:] == [
        f"  {stack.published}: gpu: the report is of another image, {parts[0].partition('@')[2]}"
    ]


def test_index_goes_back_only_to_a_named_digest(stack: Stack, parts: list[str]) -> None:
    current = stack.published.partition("@")[2]
    assert stack.promote().endswith("before: nothing")
    older = stack.push_index(23, 22)
    stack.registry.digests["acme/torch:stable"] = current
    for ref in older:
        stack.loads(ref)
    stack.checked(stack.report("good"))
    digest = stack.published.partition("@")[2]
    stack_diff.outputs("local", stack.root)["images"]["torch"]["ref"] = stack.published
    assert stack.refused()[0].endswith(f"to go back to that, give --digest {digest}")
    assert stack.promote(digest=digest).endswith(f"names {digest}; before: {current}")
    stack.evidence.unsigned.add(older[1])
    assert stack.refused(digest=digest)[1:] == [f"  {older[1]}: cosign verify: no signatures found"]
    assert parts[0] not in older


@pytest.mark.parametrize("several", [False, True])
def test_index_that_an_engine_pushed_has_its_own_evidence(stack: Stack, parts: list[str], several: bool) -> None:
    """An engine may push an image as an index with an attestation beside it: that is what the update signs."""
    pushed = stack.index(
        [
            (parts[0], {"os": "linux", "architecture": "amd64"}),
            (stack.refs[0], {"os": "unknown", "architecture": "unknown"}),
        ]
    )
    images = stack_diff.outputs("local", stack.root)["images"]
    if several:
        images["torch"]["platforms"]["linux/amd64"]["ref"] = pushed
    else:
        images["torch"] = {"ref": pushed, "tag": "1-base"}
        stack.published = pushed
        stack.checked(stack.report("good"))
    stack.evidence.unsigned.add(parts[0])
    stack.evidence.kept.pop((parts[0], "loading"))
    stack.loads(pushed)
    assert "names sha256:" in stack.promote()


def test_index_that_an_engine_pushed_before_is_promoted(stack: Stack, parts: list[str]) -> None:
    older = stack.index([(parts[0], {"os": "linux", "architecture": "amd64"})])
    stack.published = older
    stack.checked(stack.report("good"))
    stack.evidence.unsigned.add(parts[0])
    stack.evidence.kept.pop((parts[0], "loading"))
    digest = older.partition("@")[2]
    lacking = f"  {older}: loading: {NOT_INSPECTED}"
    assert stack.refused(digest=digest)[1:] == [lacking]
    stack.loads(older)
    assert f"names {digest}" in stack.promote(digest=digest)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("stabel", "'stabel' is no tag of slipway:promotion.tags (did you mean 'stable'?); they are: stable"),
        ("1-base", "'1-base' is no tag of slipway:promotion.tags"),
    ],
)
def test_other_tags_are_not_promoted(stack: Stack, tag: str, message: str) -> None:
    (line,) = stack.refused(tag=tag)
    assert line.startswith(f"stack local: {message}")


def test_tag_goes_back_only_to_a_named_digest(stack: Stack) -> None:
    older, newer = (ref.partition("@")[2] for ref in stack.refs)
    stack.registry.digests["acme/torch:stable"] = newer
    stack.published = stack.refs[0]
    stack_diff.outputs("local", stack.root)["images"]["torch"]["ref"] = stack.published
    stack.loads()
    stack.checked(stack.report("good"))
    (line,) = stack.refused()
    assert line.endswith(f"to go back to that, give --digest {older}")
    assert stack.promote(digest=older).endswith(f"names {older}; before: {newer}")


def test_digest_of_an_earlier_image_needs_evidence_too(stack: Stack) -> None:
    older = stack.refs[0]
    assert [line.partition("sha256:")[2][66:] for line in stack.refused(digest=older.partition("@")[2])[1:]] == [
        f"loading: {NOT_INSPECTED}",
        "gpu: cosign verify-attestation: no matching attestations",
    ]
    (line,) = stack.refused(digest="stable")
    assert line == "--digest: 'stable' is no digest: give sha256: and 64 digits 0-9 a-f"


@pytest.mark.parametrize(("moves", "gone"), [(1, False), (2, False), (2, True)])
def test_tag_that_moves_meanwhile_is_reported(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, moves: int, *, gone: bool
) -> None:
    """Another promotion moves the tag while the evidence is verified, or just after this one moved it; or it is deleted."""
    read = Repository.visible_digest
    other = stack.refs[0].partition("@")[2]
    reads = 0

    def moved(repository: Repository) -> str | None:
        nonlocal reads
        reads += 1
        if reads == moves + 1 and gone:
            del stack.registry.digests["acme/torch:stable"]
        elif reads == moves + 1:
            stack.registry.digests["acme/torch:stable"] = other
        return read(repository)

    monkeypatch.setattr(Repository, "visible_digest", moved)
    with pytest.raises(SlipwayError) as refusal:
        stack.promote()
    assert "acme/torch:stable" not in stack.registry.digests if gone else stack.tagged == other
    said = f"at the same time, to {'nothing' if gone else other}"
    assert ("while the evidence was verified" if moves == 1 else said) in str(refusal.value)


def test_evidence_attests_report_of_failed_checks_too(stack: Stack) -> None:
    line = stack.attach(f"pulling\n{gpu_reports.text('planted', image=stack.published)}\n")
    assert line.startswith(f"torch: {stack.published}: attested: FAILED on eks-p5, 2 x NVIDIA H100 80GB HBM3, ")
    (predicate,) = stack.evidence.kept[stack.published, "gpu"]
    assert predicate["measured"]["busBandwidth"] == 26.7
    assert "the GPU checks failed" in stack.refused()[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": ""}, "the report does not say which image was checked: run the checks with CHECKED_IMAGE="),
        ({"image": f"x@sha256:{'0' * 64}"}, f"the report is of sha256:{'0' * 64}, and torch is sha256:"),
        ({"finished": "2999-01-01T00:00:00Z"}, "the checks ended at 2999-01-01 00:00:00+00:00, which cannot be"),
        ({"started": "2026-11-25T03:00:00Z"}, "the checks ended at 2026-11-25 02:05:55+00:00, which cannot be"),
        ({"finished": "2026-11-25T02:05:50Z"}, "the checks ended at 2026-11-25 02:05:50+00:00, and newer ones, of 20"),
    ],
)
def test_evidence_refuses_what_is_not_of_the_image(stack: Stack, changes: dict[str, Any], message: str) -> None:
    stack.attach(gpu_reports.text("good", image=stack.published))
    kept = dict(stack.evidence.kept)
    with pytest.raises(SlipwayError) as refusal:
        stack.attach(gpu_reports.text("good", **{"image": stack.published, **changes}))
    assert str(refusal.value).partition("report: ")[2].startswith(message)
    assert "\n" not in str(refusal.value)
    assert stack.evidence.kept == kept


def test_evidence_of_a_missing_file_is_one_line(stack: Stack) -> None:
    with pytest.raises(SlipwayError, match=r"^/no/such: cannot be read: No such file or directory$"):
        gpu_evidence.attach("local", "torch", "/no/such", stack.root)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"promotion": None}, "slipway:promotion is not set"),
        ({"signing": None}, "evidence counts by its signature: set slipway:signing, or leave promotion out"),
        ({"extraTags": ["stable"]}, "'stable' is in slipway:extraTags too, which move without evidence"),
        ({"inspection": {"gate": False}}, "slipway:inspection.gate is false, so no inspection is attested"),
        ({"promotion": {"tags": []}}, "expected at least one tag, such as [stable]"),
        ({"promotion": {"tags": ["a", "a"]}}, "one of them is repeated"),
        ({"promotion": {"tags": ["stable"], "gpuChecks": {"profile": "cpu"}}}, "nodes of cpu have no GPU"),
        ({"promotion": {"tags": ["stable"], "gpuChecks": {"firstStep": 0}}}, "promotion.gpuChecks.firstStep"),
        ({"promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p55"}}}, "eks-p5"),
        ({"promotion": {"tags": ["sha256-x"]}}, "'sha256-' are for signatures"),
    ],
)
def test_promotion_that_proves_nothing_is_refused(stack: Stack, keys: dict[str, Any], message: str) -> None:
    text = json.loads((stack.root / STACK).read_text())
    (stack.root / STACK).write_text(
        json.dumps({"config": {**text["config"], **{f"slipway:{key}": value for key, value in keys.items()}}})
    )
    (line,) = stack.refused()
    assert message in line


class Warm:
    """The published image with layers of caches, pushed as `slipway warm` does, and its attestation."""

    def __init__(self, stack: Stack, *models: str) -> None:
        image = fetch(stack.published)
        self.layers = []
        blobs = {}
        for model in models:
            machine = (f"gpu {model}", "driver 580", "processor x86_64 avx2")
            record = WarmRecord(image.digest, "warm/steps.py", "f" * 64, "2.11.0", "3.6.0", machine)
            blob = io.BytesIO()
            layer = warm_image.compressed(io.BytesIO(model.encode() + bytes(1024)), blob, record, image)
            self.layers.append(layer)
            blobs[layer.descriptor["digest"]] = blob
        repository = stack.published.partition("@")[0]
        self.digest = warm_image.push(image, self.layers, blobs, Repository(f"{repository}:w"), "w")
        self.ref = f"{repository}@{self.digest}"
        self.evidence = stack.evidence
        self.image = image.digest

    def attest(self, *entries: Mapping[str, Any], **changes: Any) -> None:
        """Attest entries of layers; by default those of the image."""
        layers = [*entries] or [layer.attested() for layer in self.layers]
        made = {"layer": self.layers[-1].diff_id, "host": "gpu-1", "job": "", "finished": "2026-11-25T03:00:00+00:00"}
        self.evidence.kept[self.ref, "warm"] = [{"image": self.image, "layers": layers, "made": made, **changes}]


def test_attested_warm_layers_are_promoted_on_the_image_below(stack: Stack) -> None:
    warm = Warm(stack, "H100", "B200")
    warm.attest()
    assert f"names {warm.digest}" in stack.promote(digest=warm.digest)
    # The layers excuse nothing below them.
    stack.checked(stack.report("planted"))
    assert [line.split(": ")[1] for line in stack.refused(digest=warm.digest)[1:]] == ["gpu"]
    stack.evidence.unsigned |= {warm.ref, stack.published}
    lines = stack.refused(digest=warm.digest)[1:]
    assert [line.split(": ")[0].strip() for line in lines] == [warm.ref, *[stack.published] * 2]


def test_first_step_is_required_of_the_image_with_warm_layers(stack: Stack) -> None:
    stack.configure(gpuChecks={"firstStep": 20})
    warm = Warm(stack, "H100")
    warm.attest()
    # Fast as the one below may be, its caches are not those of what is promoted.
    stack.checked(stack.report("good", measured={"firstStep": {"seconds": 1}}))
    (line,) = stack.refused(digest=warm.digest)[1:]
    assert line.startswith(f"  {warm.ref}: gpu: ")
    report = {"measured": {"firstStep": {"seconds": 21.5, "caches": "warm layer"}}}
    stack.checked(stack.report("good", warm.ref, **report), ref=warm.ref)
    assert stack.refused(digest=warm.digest)[1:] == [
        f"  {warm.ref}: gpu: the first compiled step took 21.5 s, and at most 20 are required"
    ]
    report["measured"]["firstStep"]["seconds"] = 2.5
    stack.checked(stack.report("good", warm.ref, **report), ref=warm.ref)
    assert f"names {warm.digest}" in stack.promote(digest=warm.digest)


def test_promotion_of_the_stack_takes_no_warm_layers_off(stack: Stack) -> None:
    warm = Warm(stack, "H100")
    warm.attest()
    stack.promote(digest=warm.digest)
    stack.registry.digests["acme/torch:stable"] = warm.digest
    below = stack.published.partition("@")[2]
    (line,) = stack.refused()
    assert line.endswith(f"names {below} with warm layers; to take them off, give --digest {below}")
    assert stack.promote(digest=below).endswith(f"names {below}; before: {warm.digest}")


def test_warm_layer_without_evidence_is_not_promoted(stack: Stack) -> None:
    warm = Warm(stack, "H100")
    refusal = f"  {warm.ref}: warm: cosign verify-attestation: no matching attestations"
    assert stack.refused(digest=warm.digest)[1:] == [refusal]
    with pytest.raises(SlipwayError, match="warm: cosign verify-attestation: no matching attestations"):
        list(verified_digest.verify_digest("local", "torch", warm.digest, stack.root))


@pytest.mark.parametrize(
    ("attest", "reason"),
    [
        (lambda warm: warm.attest(warm.layers[0].attested()), "its layer for B200 is attested by nobody who signs for"),
        (
            lambda warm: warm.attest(*({**each.attested(), "machine": ["driver 570"]} for each in warm.layers)),
            "its layer for H100 is attested as one for something else",
        ),
        (
            lambda warm: warm.attest(*({**each.attested(), "sha256": "0" * 64} for each in warm.layers)),
            "its layer for H100 is attested as one for something else",
        ),
        (
            lambda warm: warm.attest(image=f"sha256:{'0' * 64}"),
            "its layer for H100 is attested by nobody who signs for",
        ),
        (lambda warm: warm.attest(layers=7), "warm: what is attested has another shape than `slipway` attests"),
    ],
    ids=["planted", "other-machine", "other-script", "other-image", "other-shape"],
)
def test_warm_layer_attested_as_another_is_refused(stack: Stack, attest: Any, reason: str) -> None:
    warm = Warm(stack, "H100", "B200")
    attest(warm)
    (line,) = stack.refused(digest=warm.digest)[1:]
    assert line.startswith(f"  {warm.ref}: {reason}")
    with pytest.raises(SlipwayError, match=reason):
        list(verified_digest.verify_digest("local", "torch", warm.digest, stack.root))


def test_layer_planted_between_warm_ones_is_refused(stack: Stack) -> None:
    """Its history says nothing of it, so that the layers above stay attested."""
    warm = Warm(stack, "H100")
    kept = fetch(warm.ref)
    config = json.loads(stack.registry.blobs[kept.manifest.content["config"]["digest"]])
    evil = stack.registry.blob(b"evil")
    config["rootfs"]["diff_ids"].insert(0, evil)
    config["history"].insert(0, {})
    body = json.dumps(config).encode()
    content = json.loads(json.dumps(kept.manifest.content))
    content["config"] |= {"digest": stack.registry.blob(body), "size": len(body)}
    content["layers"].insert(0, {"mediaType": kept.layers[0].media_type, "digest": evil, "size": 4})
    digest = stack.registry.manifest("acme/torch:evil", MANIFEST, content)
    warm.ref = f"{warm.ref.partition('@')[0]}@{digest}"
    warm.attest()
    (line,) = stack.refused(digest=digest)[1:]
    assert line == f"  {warm.ref}: it is not {warm.image} with warm layers alone"


def test_verify_says_where_warm_layers_come_from(stack: Stack) -> None:
    stack.configure(keys={"signing": {"key": KEY, "sbom": False, "provenance": False}})
    warm = Warm(stack, "H100", "B200")
    warm.attest()
    first, second = verified_digest.verify_digest("local", "torch", warm.digest, stack.root)
    assert (first.ref, second.ref) == (warm.ref, stack.published)
    assert [text for what, text in first.facts if what == "warm"] == [
        "gpu H100, driver 580: torch 2.11.0, Triton 3.6.0, warm/steps.py ffffffffffff",
        (
            "gpu B200, driver 580: torch 2.11.0, Triton 3.6.0, warm/steps.py ffffffffffff, made 2026-11-25T03:00:00+00:00 "
            "on gpu-1"
        ),
    ]
    assert stack.evidence.stated == {warm.ref: {}, stack.published: {"tag": "1-base"}}


def test_time_of_the_newest_report_is_a_tag_of_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in of `pulumi stack tag`, which prints the tags as an object and ends with an error's line."""
    program = tmp_path / "pulumi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    digest, tag = f"sha256:{'a' * 64}", "slipway:gpu:torch-of-a-name-that-is-too-long-for-it"[:40]

    def answer(script: str) -> None:
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n{script}\n')
        program.chmod(0o755)

    def noted(value: str) -> datetime | None:
        answer(f"cat <<'END'\n{json.dumps({tag: value})}\nEND")
        return newest_evidence.noted("local", "torch-of-a-name-that-is-too-long-for-it", digest, tmp_path)

    assert noted(f"{digest} {NOW.isoformat()}") == NOW
    assert noted(f"sha256:{'b' * 64} {NOW.isoformat()}") is None
    with pytest.raises(
        SlipwayError, match=rf"^stack local: its tag {tag} is '{digest} soon': `pulumi stack tag rm` it$"
    ):
        noted(f"{digest} soon")
    newest_evidence.note("local", "torch", digest, NOW, tmp_path)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "stack tag ls --json --stack local --non-interactive"
    assert asked[-1] == f"stack tag set slipway:gpu:torch {digest} {NOW.isoformat()} --stack local --non-interactive"
    answer("echo 'error: no stack named local' >&2; exit 255")
    with pytest.raises(SlipwayError, match="^stack local: pulumi stack tag: error: no stack named local$"):
        newest_evidence.noted("local", "torch", digest, tmp_path)
