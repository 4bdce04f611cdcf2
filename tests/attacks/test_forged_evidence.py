"""Whoever may push forges the evidence of an image, or has it of another one: no tag is promoted. By the real cosign."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from cli.diff import stack_diff
from cli.promotion import gpu_evidence, promotion
from containers.errors import SlipwayError
from containers.evidence import cosign
from stacks.config.signing import SigningConfig
from tests.helpers import gpu_reports, pushed_image, registry_api
from tests.helpers.sample_repository import STACK, make
from tests.provider.conftest import private_registry
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
"""Some hours after the reports were made."""
LOADS = {
    "result": "PASSED",
    "inspected": "2026-11-25T01:00:00+00:00",
    "images": [],
    "faults": [],
    "notListed": 0,
    "exceptions": [],
}
PROJECT = "name: slipway\nruntime: python\nstackConfigDir: stacks\n"


class Stack:
    """A stack with a real registry, key and backend of Pulumi, whose image is the one that the GPU reports name."""

    def __init__(self, address: str, root: Path, keys: Path) -> None:
        self.root = root
        self.repository = f"{address}/acme/torch"
        self.signing, self.others = (self._keys(keys / name) for name in ("ours", "others"))
        self.ref = self.publish("good")
        keys_of_stack = {
            "flavor": "local",
            "registry": {"kind": "generic", "repository": f"{address}/acme"},
            "signing": self.signing.model_dump(by_alias=True, exclude_none=True, exclude={"policy"}),
            "promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5", "gpus": 2, "busBandwidth": 250}},
        }
        (root / STACK).write_text(json.dumps({"config": {f"slipway:{key}": v for key, v in keys_of_stack.items()}}))

    @staticmethod
    def _keys(folder: Path) -> SigningConfig:
        folder.mkdir(parents=True)
        subprocess.run(["cosign", "generate-key-pair"], cwd=folder, check=True, capture_output=True)
        keys = {"key": str(folder / "cosign.key"), "publicKey": (folder / "cosign.pub").read_text()}
        return SigningConfig.model_validate({**keys, "sbom": False, "provenance": False})

    def publish(self, word: str) -> str:
        """Publish an image as `pulumi up` does: signed, and inspected."""
        ref = pushed_image.push(f"{self.repository}:{word}", word)
        cosign.sign(ref, self.signing, None, {"tag": "1-base"})
        cosign.attest(ref, "loading", LOADS, self.signing, None)
        return ref

    def attach(self, name: str) -> str:
        return gpu_evidence.attach("local", "torch", str(gpu_reports.path(name)), self.root)

    def promote(self, digest: str | None = None) -> str:
        return "\n".join(promotion.promote("local", "torch", "stable", self.root, digest, NOW))

    def refusal(self, digest: str | None = None) -> str:
        """Return why the tag does not move, on one line."""
        before = self.tagged
        with pytest.raises(SlipwayError) as refusal:
            self.promote(digest)
        assert self.tagged == before
        _, line = str(refusal.value).splitlines()
        return line

    @property
    def tagged(self) -> str | None:
        response = self.manifest("stable")
        return response.headers["Docker-Content-Digest"] if response.ok else None

    def manifest(self, version: str) -> requests.Response:
        host, _, path = self.repository.partition("/")
        accept = {"Accept": pushed_image.MANIFEST}
        return registry_api.send("GET", f"{host}/{path}/manifests/{version}", headers=accept)

    def attestations(self, ref: str = "") -> str:
        return cosign.attached(ref or self.ref, "att")


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    checkout = Checkout.here()
    with golang.caches(checkout):
        real = Path(supply_chain_programs.get(checkout, supply_chain_programs.TOOLS[0]).used)
    monkeypatch.setenv("PATH", str(real.parent), prepend=os.pathsep)
    for name, value in {
        "COSIGN_PASSWORD": "",
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "state").mkdir()
    (tmp_path / "registry").mkdir()
    root = make(tmp_path / "repo").root
    (root / "Pulumi.yaml").write_text(PROJECT)
    subprocess.run(["pulumi", "stack", "init", "local", "--non-interactive"], cwd=root, check=True, capture_output=True)
    with private_registry(tmp_path / "registry") as registry:
        stack = Stack(registry.address, root, tmp_path / "keys")
        assert stack.ref.endswith(gpu_reports.DIGEST)
        built = {"images": {"torch": {"ref": stack.ref, "tag": "1-base"}}}
        monkeypatch.setattr(stack_diff, "outputs", lambda *_: built)
        yield stack


def test_good_report_is_promoted_and_planted_one_is_not(stack: Stack) -> None:
    assert "no matching attestations" in stack.refusal() or "none of the attestations" in stack.refusal()
    assert ": attested: PASSED on eks-p5, 2 x NVIDIA H100 80GB HBM3, driver 580.159.04, 295.9 GB/s" in stack.attach(
        "good"
    )
    assert stack.promote() == f"torch: {stack.repository}:stable names {gpu_reports.DIGEST}; before: nothing"
    assert stack.tagged == gpu_reports.DIGEST
    # What an attacker keeps, and puts back later.
    kept = pushed_image.copy(stack.attestations(), f"{stack.repository}:kept")
    assert ": attested: FAILED on eks-p5" in stack.attach("planted")
    with pytest.raises(SlipwayError) as refusal:
        stack.promote()
    header, *lines = str(refusal.value).splitlines()
    assert header == f"torch: stable stays at {gpu_reports.DIGEST}:"
    assert lines == [
        (
            f"  {stack.ref}: gpu: the GPU checks failed: NCCL is slow: 27 GB/s bus bandwidth over 2 GPUs; one copies to "
            "another at 379 GB/s"
        ),
        f"  {stack.ref}: gpu: 26.7 GB/s bus bandwidth, and 250 are required",
    ]
    pushed_image.copy(kept, stack.attestations())
    assert stack.refusal().endswith("was attested, and is not there any more")
    with pytest.raises(SlipwayError, match="newer ones, of .*, are attested already"):
        stack.attach("good")


def test_evidence_of_another_image_is_refused(stack: Stack) -> None:
    stack.attach("good")
    other = stack.publish("planted")
    pushed_image.copy(stack.attestations(), stack.attestations(other))
    with pytest.raises(SlipwayError) as refusal:
        stack.promote(other.partition("@")[2])
    lines = str(refusal.value).splitlines()[1:]
    assert len(lines) == 2  # neither the inspection nor the GPU checks of the other image count
    assert all("cosign verify-attestation" in line for line in lines), lines


def test_evidence_by_another_key_is_refused(stack: Stack) -> None:
    predicate = json.loads(gpu_reports.text("good"))
    cosign.attest(stack.ref, "gpu", predicate, stack.others, None)
    assert f"{stack.ref}: gpu: cosign verify-attestation" in stack.refusal()


def test_evidence_attested_as_another_kind_is_refused(stack: Stack) -> None:
    predicate = json.loads(gpu_reports.text("good"))
    cosign.attest(stack.ref, "vex", predicate, stack.signing, None)
    assert f"{stack.ref}: gpu: cosign verify-attestation" in stack.refusal()
    # The layer's annotation names the type, too, for those who filter by it. It is not signed.
    relabelled(stack, "https://openvex.dev/ns/v0.2.0", "urn:slipway:gpu-checks:v1")
    assert f"{stack.ref}: gpu: cosign verify-attestation" in stack.refusal()


def relabelled(stack: Stack, former: str, name: str) -> None:
    """Push the attestations with another type in their annotations."""
    host, _, path = stack.repository.partition("/")
    tag = stack.attestations().rpartition(":")[2]
    content: dict[str, Any] = stack.manifest(tag).json()
    assert former in json.dumps(content)
    body = json.dumps(content).replace(former, name).encode()
    headers = {"Content-Type": pushed_image.MANIFEST}
    registry_api.send("PUT", f"{host}/{path}/manifests/{tag}", body, headers).raise_for_status()


def test_older_image_is_not_promoted_without_its_digest(stack: Stack) -> None:
    stack.attach("good")
    newer = pushed_image.push(f"{stack.repository}:stable", "newer", "2026-11-25T00:00:00Z")
    with pytest.raises(SlipwayError, match=f"to go back to that, give --digest {gpu_reports.DIGEST}"):
        stack.promote()
    assert stack.tagged == newer.partition("@")[2]
    assert stack.promote(gpu_reports.DIGEST).endswith(f"before: {newer.partition('@')[2]}")
