"""``slipway verify``: the parents that it verifies are those of the published images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli import verify
from cli.commands import compare
from cli.diff import stack_diff
from cli.main import main
from containers.errors import SlipwayError
from containers.evidence import cosign
from containers.registry.client import Repository
from containers.registry.credentials import Login
from stacks import plan
from stacks.config.signing import SignerConfig
from stacks.config.stack_config import StackConfig
from tests.helpers.sample_repository import STACK, Checkout, make

OURS = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/0"
THEIRS = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1"
THEN, NOW = ("sha256:" + digit * 64 for digit in "ab")
TORCH = f"r.example/x/torch@sha256:{'c' * 64}"
DEBIAN = "docker.io/library/debian"
PLATFORMS = {"linux/amd64": "1", "linux/arm64": "2"}


class Recorder:
    """A stand-in of cosign: the verified references, each with its signer's key and the login."""

    def __init__(self, parents: list[str]) -> None:
        self.verified: dict[str, tuple[str | None, Login | None]] = {}
        self.annotations: dict[str, Mapping[str, str] | None] = {}
        uris = [f"pkg:docker/{parent}?platform=linux%2Famd64" for parent in parents]
        self._provenance = {
            "buildDefinition": {
                "externalParameters": {"configSource": {"uri": "", "digest": {"sha1": ""}}},
                "internalParameters": {"uncommitted": False, "ref": "refs/heads/main", "engine": "machine"},
                "resolvedDependencies": [{"uri": "git+https://git.example/x"}, *({"uri": uri} for uri in uris)],
            },
            "runDetails": {"builder": {"id": "urn:slipway:by-hand"}, "metadata": {"finishedOn": ""}},
        }

    def verify(
        self, ref: str, signer: SignerConfig, login: Login | None, annotations: Mapping[str, str] | None = None
    ) -> None:
        self.verified[ref] = (signer.public_key, login)
        self.annotations[ref] = annotations

    def attested(self, *_: Any) -> Mapping[str, Any]:
        return self._provenance


def ask(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, parents: list[str], image: str | None = None, **config: Any
) -> tuple[Recorder, str]:
    """Verify a stack whose one image was built on ``parents``; return the recorder and the output."""
    recorder = Recorder(parents)
    published = config.pop("published", {"torch": {"ref": TORCH, "tag": "1-base"}})
    monkeypatch.setattr(stack_diff, "outputs", lambda *_: {"images": published})
    monkeypatch.setattr(cosign, "verify", recorder.verify)
    monkeypatch.setattr(cosign, "attested", recorder.attested)
    login = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": {"secure": "x"}}
    signing = {"key": OURS, "sbom": False, **config.pop("signing", {})}
    stack = {"flavor": "local", "registry": login, "signing": signing, **config}
    checkout.write(STACK, json.dumps({"config": {f"slipway:{key}": value for key, value in stack.items()}}))
    return recorder, "\n".join(line for each in verify.verify("local", checkout.root, image) for line in each.lines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout whose lock has moved since its image was published."""
    repository = make(tmp_path / "repo", program=False)
    repository.write("stacks/lock.toml", f'"{DEBIAN}:bookworm-slim" = "{NOW}"\n')
    return repository


def test_verify_parents_come_from_provenance(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = {"debian": {"publicKey": THEIRS}}
    parents = [f"{DEBIAN}@{THEN}", f"docker.io/nvidia/cuda@{THEN}", "quay.io/x/y@1"]
    for image in (None, "torch"):
        recorder, output = ask(checkout, monkeypatch, parents, image, trust=trust)
        assert recorder.verified == {TORCH: (OURS, None), f"{DEBIAN}@{THEN}": (THEIRS, None)}
        assert output.endswith(f"parent: {DEBIAN}@{THEN}\n  signature   public key {THEIRS}")
        assert "on quay.io/x/y@1, by tag only" in output


def test_verify_own_images_are_no_outside_parents(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one image was rebuilt alone, others have its previous build as parent, in a registry that may be trusted too."""
    monkeypatch.setattr(verify, "_trusted", lambda *_: SignerConfig.model_validate({"publicKey": THEIRS}))
    recorder, _ = ask(checkout, monkeypatch, [f"{TORCH.partition('@')[0]}@{THEN}", f"{DEBIAN}@{THEN}"])
    assert set(recorder.verified) == {TORCH, f"{DEBIAN}@{THEN}"}


def test_verify_mirrored_parent_has_its_public_name(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    ecr = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    cache = {"kind": "ecr", "repository": f"{ecr}/ml", "pullThroughCache": {"quay.io": {"prefix": "qq"}}}
    mirrors = {"images": {"docker.io": "quay.io/hub"}}
    parent = f"{ecr}/qq/hub/library/debian@{THEN}"
    trust = {"debian": {"publicKey": THEIRS}}
    lock = checkout.root / "stacks/lock.toml"
    lock.write_text(lock.read_text().replace("docker.io", "quay.io/hub"))
    recorder, _ = ask(checkout, monkeypatch, [parent], trust=trust, mirrors=mirrors, registry=cache)
    assert recorder.verified == {TORCH: (OURS, None), parent: (THEIRS, None)}


def test_verify_parent_without_digest_is_refused(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SlipwayError, match=rf"^{DEBIAN}@bookworm-slim: the image is built on its tag, .*; lock it, and"
    ):
        ask(checkout, monkeypatch, [f"{DEBIAN}@bookworm-slim"], trust={"debian": {"publicKey": THEIRS}})


def test_verify_without_provenance_uses_planned_parents(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    trust, signing = {"debian": {"publicKey": THEIRS}}, {"provenance": False}
    recorder, _ = ask(checkout, monkeypatch, [], trust=trust, signing=signing)
    assert set(recorder.verified) == {TORCH, f"debian:bookworm-slim@{NOW}"}
    recorder, _ = ask(checkout, monkeypatch, [], "torch", trust=trust, signing=signing)
    assert set(recorder.verified) == {TORCH}


def test_verify_without_provenance_needs_the_tag_of_a_parent(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag of another stack may have moved to another image that it signed."""
    signing = {"key": THEIRS, "sbom": False}
    base = {"flavor": "local", "registry": {"kind": "generic", "repository": "r.example/base"}, "signing": signing}
    checkout.write(
        "stacks/Pulumi.base.yaml", json.dumps({"config": {f"slipway:{key}": value for key, value in base.items()}})
    )
    checkout.write("trainer/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    own = [{"name": "trainer", "dockerfile": "trainer/Dockerfile", "on": "base/torch"}]
    monkeypatch.setattr(Repository, "visible_digest", lambda _: THEN)
    theirs = plan.make("base", root=checkout.root).image("torch")
    parent = f"r.example/base/torch@{THEN}"
    for trust, needed in (
        ({}, theirs.annotations),
        ({"r.example/base": {"publicKey": THEIRS}}, theirs.annotations),
        ({"r.example/base": {"publicKey": OURS}}, {}),
    ):
        recorder, output = ask(
            checkout, monkeypatch, [], images=own, tagSuffix="own", signing={"provenance": False}, trust=trust
        )
        assert recorder.annotations[parent] == needed, trust
        stated = f", as {theirs.tag}" if needed else ""
        assert output.endswith(f"parent: {parent}\n  signature   public key {recorder.verified[parent][0]}{stated}")


def test_verify_parent_in_own_registry_uses_stack_login(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_REGISTRY_USERNAME", "me")
    monkeypatch.setenv("SLIPWAY_REGISTRY_PASSWORD", "hunter2")
    parents = [f"r.example/base/debian@{THEN}", f"docker.io/acme/debian@{THEN}", TORCH]
    trust = {"r.example": {"publicKey": THEIRS}, "acme": {"publicKey": THEIRS}, "debian": {"publicKey": THEIRS}}
    registry = {"kind": "generic", "repository": "r.example/x"}
    base = f"r.example/base/debian:1@{NOW}"
    with pytest.raises(SlipwayError, match="slipway:trust: 'acme': no parent image comes from there"):
        ask(checkout, monkeypatch, parents, trust=trust, registry=registry, base=base)
    trust = {"r.example": {"publicKey": THEIRS}}
    recorder, _ = ask(checkout, monkeypatch, parents, trust=trust, registry=registry, base=base)
    ours = Login("r.example", "me", "hunter2")
    assert recorder.verified == {TORCH: (OURS, ours), parents[0]: (THEIRS, ours)}
    # Cosign gives it to no other registry: containers.evidence.programs.
    trust = {"acme": {"publicKey": THEIRS}}
    base = f"docker.io/acme/debian:1@{NOW}"
    recorder, _ = ask(checkout, monkeypatch, parents, trust=trust, registry=registry, base=base)
    assert recorder.verified == {TORCH: (OURS, ours), parents[1]: (THEIRS, ours)}


def test_verify_requires_the_tag_of_own_images_only(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' signatures have no annotations of ours."""
    recorder, output = ask(checkout, monkeypatch, [f"{DEBIAN}@{THEN}"], trust={"debian": {"publicKey": THEIRS}})
    assert recorder.annotations == {TORCH: {"tag": "1-base"}, f"{DEBIAN}@{THEN}": {}}
    assert f"  signature   public key {OURS}, as 1-base\n" in output
    assert "  slsa        build level 1: signed with a key, which does not show where the image was built\n" in output


def test_verify_of_a_planned_image_requires_its_fingerprint(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(checkout, monkeypatch, [])
    planned = plan.make("local", root=checkout.root)
    image = planned.image("torch")
    assert verify.stated(planned, "torch", {"tag": image.tag}) == image.annotations
    assert len(image.annotations["fingerprint"]) == 64
    assert verify.stated(planned, "gone", {"tag": "x"}) == {"tag": "x"}


def test_verify_of_an_index_covers_its_platforms(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence is about the image of one platform, so an index alone would show none."""
    own = {platform: {"ref": f"{TORCH[:-1]}{digit}", "tag": digit} for platform, digit in PLATFORMS.items()}
    published = {
        "torch": {"ref": TORCH, "tag": "1-base", "platforms": own},
        "tool": {"ref": f"r.example/x/tool@{NOW}", "tag": "1-tool"},
    }
    both: dict[str, Any] = {"published": published, "platforms": [*PLATFORMS]}
    recorder, output = ask(checkout, monkeypatch, [], "torch", **both)
    assert [*recorder.verified] == [TORCH, *(part["ref"] for part in own.values())]
    assert output.count("  provenance  ") == 2
    recorder, _ = ask(checkout, monkeypatch, [], "torch-arm64", **both)
    assert [*recorder.verified] == [own["linux/arm64"]["ref"]]


def test_verify_reports_all_violations_of_the_policy(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = {"repository": "github.com/acme/images", "ref": "refs/heads/main", "maxAgeDays": 30}
    with pytest.raises(SlipwayError) as caught:
        ask(checkout, monkeypatch, [], signing={"policy": policy})
    assert str(caught.value).splitlines() == [
        f"{TORCH}: policy: repository is not stated, but must be 'github.com/acme/images'",
        f"{TORCH}: policy: the time of the build is '', so its age is unknown; at most 30 days are allowed",
    ]


def test_verify_without_provenance_shows_no_level(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = ask(checkout, monkeypatch, [], signing={"provenance": False})
    assert output.endswith("  slsa        build level 0: no provenance is attested")


def test_evidence_shows_the_newest_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    signing = StackConfig.model_validate(
        {
            "flavor": "local",
            "registry": {"kind": "local"},
            "signing": {"key": OURS, "sbom": False, "provenance": False},
        }
    ).signing
    assert signing
    old, new = (
        {
            "inspected": f"2026-11-{day}T00:00:00+00:00",
            "result": "PASSED",
            "images": [{"resolved": day}],
            "faults": [],
            "notListed": 0,
        }
        for day in (19, 25)
    )
    for every in ([old, new], [new, old]):
        monkeypatch.setattr(cosign, "every_attested", lambda *_, every=every: every)
        facts = verify.Evidence(TORCH, signing, None, ["loading"]).facts()
        assert facts[0] == ("loading", "everything loads: 25 files resolved, inspected 2026-11-25T00:00:00+00:00")


def test_evidence_shows_the_newest_scan_of_our_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may attest theirs by the same key; an image that has those alone was not scanned."""
    keys = {"key": OURS, "sbom": False, "provenance": False}
    registry = {"kind": "local"}
    signing = StackConfig.model_validate({"flavor": "local", "registry": registry, "signing": keys}).signing
    assert signing

    def record(scanner: str, day: int) -> dict[str, Any]:
        result = {"matches": [{}] * day, "notListed": 0}
        database = {"uri": "", "version": "2026-11-01T00:00:00+00:00"}
        at = f"2026-11-{day}T00:00:00+00:00"
        return {
            "scanner": {"uri": f"pkg:golang/github.com/{scanner}@v1", "version": "1", "db": database, "result": result},
            "metadata": {"scanStartedOn": at, "scanFinishedOn": at},
        }

    grypes, other = [record("anchore/grype", day) for day in (25, 19)], record("aquasecurity/trivy", 26)
    monkeypatch.setattr(cosign, "every_attested", lambda *_: [*grypes, other])
    facts = verify.Evidence(TORCH, signing, None, ["scan"]).facts()
    assert facts[0] == ("scan", "25 known vulnerabilities on 2026-11-25, by the database of 2026-11-01")
    monkeypatch.setattr(cosign, "every_attested", lambda *_: [other])
    with pytest.raises(SlipwayError) as caught:
        verify.Evidence(TORCH, signing, None, ["scan"])
    assert str(caught.value) == f"{TORCH}: scan: attested by other scanners alone; `slipway` attests Grype's"


def test_verify_as_json_has_facts_and_mistakes(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(checkout, monkeypatch, [f"{DEBIAN}@{THEN}"])
    monkeypatch.setattr(compare, "ROOT", checkout.root)
    assert main(["verify", "local", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    [torch] = result["verified"]
    assert (torch["name"], torch["ref"], result["mistakes"]) == ("torch", TORCH, [])
    assert torch["facts"]["signature"] == [f"public key {OURS}, as 1-base"]
    assert torch["facts"]["provenance"][-1] == f"on {DEBIAN}@{THEN}"

    def refuse(ref: str, *_: Any) -> None:
        raise SlipwayError(f"{ref}: no signature")

    monkeypatch.setattr(cosign, "verify", refuse)
    assert main(["verify", "local", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"verified": [], "mistakes": [f"{TORCH}: no signature"]}
