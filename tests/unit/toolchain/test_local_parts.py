"""The registry and the base image of this machine, as far as no service is needed to see it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from stacks import flavors
from tests.helpers.every import every
from toolchain import needs
from toolchain.checkout import Checkout
from toolchain.machine.network import apt_mirrors, trust_store
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import base_image, docker_registry, part
from toolchain.parts.part import Part


@every("address", ["127.0.0.1:5005", None])
def test_address_is_that_of_the_running_registry(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    running = address and Part(docker_registry.NAME, "", "", env={docker_registry.VARIABLE: address})
    monkeypatch.setattr(docker_registry, "_running", lambda _: running)
    assert docker_registry.own_address(Checkout.here()) == address


@every("status, reason", [(0, ""), (1, "no such host")])
def test_base_image_is_pulled_by_docker(status: int, reason: str, tmp_path: Path) -> None:
    (tmp_path / "docker").write_text(
        f'#!/bin/sh\n[ "$*" = "pull debian:bookworm-slim" ] || exit 2\necho {reason} >&2\nexit {status}\n'
    )
    (tmp_path / "docker").chmod(0o755)
    assert base_image._pull({"PATH": str(tmp_path)}) == reason


def test_files_of_base_image_are_of_the_release_day() -> None:
    assert datetime.fromtimestamp(base_image.EPOCH, UTC) == datetime(2023, 6, 10, tzinfo=UTC)


def test_registry_without_our_login_is_told_before_the_bootstrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text(
        "#!/bin/sh\necho 'Get \"http://r.example/v2/\": no basic auth credentials' >&2\nexit 1\n"
    )
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    checkout = Checkout(tmp_path)
    configured = Part(docker_registry.NAME, "r.example", "configured", env={docker_registry.VARIABLE: "r.example"})
    monkeypatch.setattr(docker_registry, "get", lambda _: configured)
    monkeypatch.setattr(base_image, "find", lambda _: None)
    with pytest.raises(ToolchainError, match=r"^SLIPWAY_REGISTRY=r\.example: .*: `docker login r\.example` "):
        base_image.get(checkout)


def test_part_is_recorded_without_credentials(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    texts = ("https://me:secret@r.example/x", "https://me:secret@index.example refused")
    kept = part.remember(checkout, Part("x", texts[0], "1", why=texts[1]))
    assert part.recall(checkout, "x") == kept
    assert (kept.used, kept.why) == ("https://r.example/x", "https://index.example refused")
    assert "secret" not in "".join(file.read_text() for file in (checkout.state / "parts").iterdir())


def test_base_image_of_a_platform_is_none_where_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_image, "find", lambda _: None)
    assert base_image.find_for(Checkout(tmp_path), "linux/arm64") is None
    monkeypatch.setattr(base_image, "find", lambda _: Part(base_image.NAME, "debian:bookworm-slim", "12"))
    assert base_image.find_for(Checkout(tmp_path), "linux/arm64") == Part(
        base_image.name("linux/arm64"), "debian:bookworm-slim", "12"
    )


def test_bootstrapped_base_image_is_looked_up_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user of the machine may move its tag."""
    registry, digest, asked = "127.0.0.1:5000", f"sha256:{'a' * 64}", list[str]()
    env = {apt_mirrors.VARIABLE: apt_mirrors.base_image_mirror(registry, digest)}
    there = Part(base_image.NAME, f"{registry}/{base_image.QUALIFIED}", "12", env=env)

    def entries(_: Checkout, reference: str) -> dict[str, str]:
        asked.append(reference)
        return {"linux/amd64": digest}

    monkeypatch.setattr(base_image, "find", lambda _: there)
    monkeypatch.setattr(base_image, "_entries", entries)
    assert base_image.find_for(Checkout(tmp_path), "linux/arm64") is None
    assert base_image.find_for(Checkout(tmp_path), "linux/amd64")
    assert asked == [f"{registry}/docker.io/library/debian@{digest}"] * 2


@every("publish", [True, False])
def test_registry_of_this_machine_is_for_what_is_pushed(*, publish: bool) -> None:
    config = flavors.load({"flavor": "local", "registry": {"kind": "local"}, "publish": publish}, "stack x")
    assert needs.local(config) is publish


def test_bootstrapped_base_image_is_of_its_week_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(day: int = 2, machine: str = "amd64") -> str:
        now = datetime(2026, 3, day, tzinfo=UTC)  # the second is a Monday
        monkeypatch.setattr(base_image, "datetime", SimpleNamespace(now=lambda _: now))
        return base_image._key(machine)

    monkeypatch.setattr(trust_store, "BUNDLE", tmp_path / "bundle")
    first = key()
    assert key(day=8) == first
    keys = [first, key(day=9), key(machine="arm64")]
    (tmp_path / "bundle").write_text("another root")
    keys.append(key())
    monkeypatch.setattr(base_image, "EPOCH", 0)
    keys.append(key())
    monkeypatch.setattr(base_image, "DPKG_OPTIONS", ())
    keys.append(key())
    (tmp_path / "trust_store.py").write_text("another program")
    monkeypatch.setattr(trust_store, "__file__", str(tmp_path / "trust_store.py"))
    keys.append(key())
    assert len({*keys}) == len(keys)
