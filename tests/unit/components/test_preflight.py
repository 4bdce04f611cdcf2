"""What is checked before the first build: the platforms of outside parents."""

from __future__ import annotations

from typing import Any

import pytest

from components import preflight
from stacks import plan
from tests.fakes.registry import INDEX, Registry, skip_retry_waits
from tests.helpers.refusals import refusal, refusal_line

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
