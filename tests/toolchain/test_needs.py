"""Which parts a stack needs, and what the user says of mirrors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from containers.engine.engine_platforms import PLATFORMS
from tests.helpers.program_copy import copy_folders
from tests.toolchain.clone import Clone
from toolchain import environment, ready
from toolchain.machine import apt
from toolchain.machine.network import apt_mirrors
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import python_env
from toolchain.parts.part import Part

OURS = json.loads(apt_mirrors.base_image_mirror("127.0.0.1:5000"))
PINNED = json.loads(apt_mirrors.base_image_mirror("127.0.0.1:5000", f"sha256:{'a' * 64}"))
HUB = {"images": {"docker.io": "mirror.invalid/hub"}}
GHCR = {"kind": "ghcr", "repository": "ghcr.io/acme/images"}
ECR = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}
LOGIN = {"credential": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:ecr-pullthroughcache/hub"}
RUNNERS = {
    "kind": "kubernetes",
    "github": {"url": "https://github.com/acme", "secret": "github"},
    "nodeSelector": {"acme.example/pool": "jobs"},
}
EC2 = {
    "kind": "ec2",
    "region": "eu-west-1",
    "account": "123456789012",
    "github": {
        "url": "https://github.com/acme",
        "secret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:github-AbCdEf",
        "webhookSecret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:webhook-AbCdEf",
    },
    "labels": ["gpu"],
    "instanceTypes": ["g6.2xlarge"],
}
BUILDER = {**EC2, "build": {"instanceType": "c7i.4xlarge"}}
UBUNTU = "ubuntu:24.04"


@pytest.fixture
def stacks(clone: Clone) -> Clone:
    """A clone with the stacks' code and this checkout's Python environment."""
    copy_folders(clone.root, "containers", "stacks", "toolchain", without=["*.yaml"])
    clone.checkout.state.mkdir()
    part = python_env.find(clone.checkout.here())
    assert part is not None, "the Python environment is missing: run `make ready`"
    clone.checkout.venv.symlink_to(part.used)
    return clone


SERVICES = {"Docker engine", "registry", "base image"}
SIGNERS = {"cosign", "syft", "grype"}
FOREIGN = {f"{part} {platform}" for part in ("emulation of", "base image for") for platform in PLATFORMS}
"""The parts by which an engine builds for another platform."""
KEY = {"key": "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"}


def _write(clone: Clone, config: dict[str, Any]) -> None:
    lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in {"flavor": "local", **config}.items()]
    (clone.root / "stacks" / "Pulumi.t.yaml").write_text("\n".join(["config:", *lines]) + "\n")


@pytest.mark.parametrize(
    ("config", "mirrors", "needless"),
    [
        ({}, {}, {"AWS provider", *SIGNERS}),
        ({}, OURS, {"AWS provider", *SIGNERS}),
        ({}, HUB, {"base image", "AWS provider", *SIGNERS}),
        ({"mirrors": HUB}, {}, {"base image", "AWS provider", *SIGNERS}),
        ({"base": UBUNTU}, {}, {"base image", "AWS provider", *SIGNERS}),
        ({"base": "docker.io/library/debian:bookworm-slim"}, {}, {"AWS provider", *SIGNERS}),
        ({"registry": GHCR}, {}, {"registry", "AWS provider", *SIGNERS}),
        ({"registry": {"kind": "local", "address": "127.0.0.1:9"}}, {}, {"registry", "AWS provider", *SIGNERS}),
        ({"registry": GHCR, "base": UBUNTU}, {}, {"registry", "base image", "AWS provider", *SIGNERS}),
        ({"publish": False}, {}, {"registry", "AWS provider", *SIGNERS}),
        ({"registry": ECR}, {}, {"registry", *SIGNERS}),
        ({"registry": {**ECR, "pullThroughCache": {"docker.io": LOGIN}}}, {}, {"registry", "base image", *SIGNERS}),
        ({"registry": ECR, "publish": False}, {}, {"registry", "AWS provider", *SIGNERS}),
        ({"signing": KEY}, {}, {"AWS provider", "grype"}),
        ({"signing": {**KEY, "sbom": False}}, {}, {"AWS provider", "syft", "grype"}),
        ({"vulnerabilities": {"maxAge": 3}}, {}, {"AWS provider", "cosign", "syft"}),
        ({"vulnerabilities": {}, "publish": False}, {}, {"registry", "AWS provider", "cosign", "syft"}),
        ({"signing": KEY, "publish": False}, {}, {"registry", "AWS provider", *SIGNERS}),
        ({"trust": {"docker.io": {"publicKey": KEY["key"]}}}, {}, {"AWS provider", "syft", "grype"}),
        ({"runners": RUNNERS}, {}, {"AWS provider", *SIGNERS}),
        ({"flavor": "runners", "runners": RUNNERS}, {}, {*SERVICES, "AWS provider", *SIGNERS}),
        ({"flavor": "runners", "runners": EC2}, {}, {*SERVICES, *SIGNERS}),
        ({"buildOn": "runners", "runners": BUILDER, "registry": GHCR}, {}, {*SERVICES, *SIGNERS}),
    ],
)
def test_parts_of_stack_are_those_it_uses(
    stacks: Clone, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], mirrors: dict[str, Any], needless: set[str]
) -> None:
    monkeypatch.setenv(apt_mirrors.VARIABLE, json.dumps(mirrors))
    _write(stacks, config)
    cluster = set() if config.get("runners") == RUNNERS else {"Kubernetes provider"}
    assert ready.unneeded_parts(stacks.checkout, "t") == needless | cluster | FOREIGN


@pytest.mark.parametrize(
    ("config", "pushing", "needed"),
    [
        ({}, True, {"emulation of linux/arm64", "base image for linux/arm64"}),
        ({"publish": False}, True, {"emulation of linux/arm64", "base image for linux/arm64"}),
        ({"base": UBUNTU}, True, {"emulation of linux/arm64"}),
        ({}, False, set()),
        (
            {"buildOn": "runners", "runners": {**BUILDER, "instanceTypes": ["g5g.xlarge"]}, "registry": GHCR},
            True,
            set(),
        ),
    ],
)
def test_stack_of_another_platform_needs_its_emulation(
    stacks: Clone, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], pushing: bool, needed: set[str]
) -> None:
    monkeypatch.setattr(apt, "machine", lambda: "amd64")
    monkeypatch.setenv(apt_mirrors.VARIABLE, "{}")
    _write(stacks, {"platform": "linux/arm64", **config})
    assert FOREIGN - ready.unneeded_parts(stacks.checkout, "t", pushing=pushing) == needed
    assert ready.unneeded_parts(stacks.checkout, "t", pushing=pushing, emulating=False) >= FOREIGN
    monkeypatch.setattr(apt, "machine", lambda: "arm64")
    assert ready.unneeded_parts(stacks.checkout, "t", pushing=pushing) >= FOREIGN


@pytest.mark.parametrize(
    ("trust", "needless"), [({}, SIGNERS), ({"docker.io": {"publicKey": KEY["key"]}}, {"syft", "grype"})]
)
def test_parts_without_pushing_leave_out_supply_chain_programs(
    stacks: Clone, trust: dict[str, Any], needless: set[str]
) -> None:
    _write(stacks, {"signing": KEY, "trust": trust})
    assert ready.unneeded_parts(stacks.checkout, "t", pushing=False) & SIGNERS == needless


@pytest.mark.parametrize(("building", "needless"), [(True, {"cosign", "syft"}), (False, SIGNERS)])
def test_scanner_is_for_images_that_are_built(stacks: Clone, building: bool, needless: set[str]) -> None:
    """A pull request's images are built and not pushed; a preview builds none."""
    _write(stacks, {"vulnerabilities": {}})
    left_out = ready.unneeded_parts(stacks.checkout, "t", pushing=False, building=building)
    assert left_out & SIGNERS == needless


def test_wrong_configuration_is_one_line_before_any_part(stacks: Clone) -> None:
    _write(stacks, {"publsh": True, "platform": 7})
    with pytest.raises(ToolchainError, match=r"^stack t: .*'publsh'.*$"):
        ready.unneeded_parts(stacks.checkout, "t")


@pytest.mark.parametrize(
    ("text", "below", "value"),
    [
        ("", "{}", None),
        ("", json.dumps(OURS), OURS),
        (json.dumps(OURS), "{}", None),
        (json.dumps(OURS).replace("5000", "5001"), json.dumps(OURS), OURS),
        ('{"apt": "http://a"}', json.dumps(OURS), {"apt": "http://a", **OURS}),
        (json.dumps(HUB), json.dumps(OURS), {"images": {**OURS["images"], **HUB["images"]}}),
        (json.dumps(PINNED), json.dumps(PINNED), PINNED),
        (json.dumps(PINNED), "{}", None),
        (
            '{"images": {"docker.io/library/debian": "mine.invalid/debian"}}',
            json.dumps(OURS),
            {"images": {"docker.io/library/debian": "mine.invalid/debian"}},
        ),
    ],
)
def test_users_mirror_overrides_base_images(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, text: str, below: str, value: dict[str, Any] | None
) -> None:
    monkeypatch.setenv(apt_mirrors.VARIABLE, text)
    parts = [Part("base image", "", "", env={apt_mirrors.VARIABLE: below})]
    merged = environment.variables(clone.checkout, parts).get(apt_mirrors.VARIABLE)
    assert (None if merged is None else json.loads(merged)) == value
    environment.save(clone.checkout, parts)
    assert (apt_mirrors.VARIABLE in Path(clone.checkout.env_file).read_text()) == (value is not None)


@pytest.mark.parametrize("text", ["{oops", "[]", '"x"', '{"images": null}', '{"images": 7}'])
def test_malformed_text_is_one_line(text: str) -> None:
    with pytest.raises(ToolchainError, match=rf"^SLIPWAY_MIRRORS={re.escape(text)}: expected a JSON object such as "):
        apt_mirrors.configured({apt_mirrors.VARIABLE: text})
