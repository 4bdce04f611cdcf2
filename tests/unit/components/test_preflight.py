"""What is checked before the first build: the platforms of outside parents."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components import preflight
from containers.registry.reference import on_loopback
from stacks import plan
from tests.fakes.loopback import run_server
from tests.fakes.registry import INDEX, Registry, _Handler, skip_retry_waits
from tests.helpers.every import every
from tests.helpers.refusals import refusal, refusal_line

KEY = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
AMD64, ARM64 = "linux/amd64", "linux/arm64"
BOTH = [AMD64, ARM64]


@pytest.fixture
def parent(registry: Registry) -> str:
    """Return a parent for amd64 alone."""
    registry.image("a/debian:1", [b"amd64"])
    return f"{registry.address}/a/debian:1"


def planned(parent: str, **keys: Any) -> plan.Plan:
    values = {"flavor": "local", "torch": {"version": "2.14.1"}, "base": parent, **keys}
    return plan.make("local", values, search=False)


def test_parent_that_lacks_a_platform_names_those_it_has(parent: str) -> None:
    assert refusal_line(preflight.check, planned(parent, platforms=BOTH)) == (
        f"{parent}: no image for linux/arm64; it has: linux/amd64; give another parent, or take linux/arm64 out of "
        "slipway:platforms"
    )


def test_parent_of_another_platform_is_refused_for_one(parent: str) -> None:
    """BuildKit takes an image that is in no index for whichever platform it builds for."""
    assert refusal_line(preflight.check, planned(parent, platform=ARM64)) == (
        f"{parent}: no image for linux/arm64; it has: linux/amd64; give another parent, or another slipway:platform"
    )


def test_index_of_a_parent_has_arm64_by_any_variant(registry: Registry) -> None:
    entries = [
        {"digest": registry.image(f"a/x:{name}", [name.encode()]).partition("@")[2], "platform": platform}
        for name, platform in {
            "arm64": {"os": "linux", "architecture": "arm64", "variant": "v8"},
            "arm": {"os": "linux", "architecture": "arm", "variant": "v7"},
            "attestation": {"os": "unknown", "architecture": "unknown"},
        }.items()
    ]
    registry.manifest("a/debian:1", INDEX, {"manifests": entries})
    parent = f"{registry.address}/a/debian:1"
    preflight.check(planned(parent, platform=ARM64))
    assert "no image for linux/amd64; it has: linux/arm64, linux/arm/v7; " in refusal(
        preflight.check, planned(parent, platforms=BOTH)
    )


def test_usual_platform_asks_no_registry(registry: Registry, parent: str) -> None:
    preflight.check(planned(parent))
    assert registry.requests == []


def test_parent_that_only_an_engine_reaches_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    preflight.check(planned("127.0.0.1:1/a/debian:1", platforms=BOTH))  # no registry is there


def address_of_this_machine() -> str:
    """Return an address of this machine that is not on loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture
def plain_registry() -> Iterator[str]:
    """A registry with plain HTTP beyond loopback, as an engine's `insecure-registries` may list it."""
    handler = type("Handler", (_Handler,), {"registry": Registry("")})
    with run_server(ThreadingHTTPServer((address_of_this_machine(), 0), handler)) as server:
        yield f"{server.server_address[0]!s}:{server.server_port}"


@pytest.mark.parametrize("kind", ["generic", "local"])
@pytest.mark.parametrize("compression", [{}, {"compression": {"kind": "zstd"}}], ids=["gzip", "zstd"])
def test_registry_without_https_is_refused(plain_registry: str, kind: str, compression: dict[str, Any]) -> None:
    assert not on_loopback(plain_registry)
    names = {"generic": {"repository": f"{plain_registry}/ml"}, "local": {"address": plain_registry}}
    keys = {"registry": {"kind": kind, **names[kind]}, **compression}
    line = refusal_line(preflight.check, plan.make("local", {"flavor": "local", **keys}, search=False))
    assert line.startswith(f"slipway:registry: {plain_registry} has no HTTPS that this machine trusts (")
    assert "serve it over TLS" in line


def test_registry_that_only_the_engine_reaches_passes() -> None:
    registry = {"kind": "generic", "repository": "registry.invalid:5000/ml"}
    preflight.check(plan.make("local", {"flavor": "local", "registry": registry}, search=False))


def test_unpublished_stack_asks_no_registry(plain_registry: str) -> None:
    registry = {"kind": "generic", "repository": f"{plain_registry}/ml"}
    preflight.check(plan.make("local", {"flavor": "local", "registry": registry, "publish": False}, search=False))


@every(
    "keys, line",
    [
        ({"signing": {"key": "gone.key", "publicKey": KEY}}, "slipway:signing: cosign is not on PATH"),
        ({"trust": {"docker.io": {"publicKey": KEY}}}, "slipway:trust: cosign is not on PATH"),
        ({"vulnerabilities": {"severity": "critical"}}, "slipway:vulnerabilities: grype is not on PATH"),
    ],
)
def test_missing_program_of_a_gate_is_refused_first(
    keys: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal_line(preflight.check, planned(f"debian@sha256:{'a' * 64}", **keys)).startswith(line)
