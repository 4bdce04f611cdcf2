"""What is asked of a registry before a build product is built, and what of the answer is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.supply_chain.published_product import FindPublished
from containers.errors import SlipwayError
from tests.fakes.registry import MANIFEST, Registry

NAMED = {"tag": "x1", "fingerprint": "1" * 64}
TRUSTED = {"signer": None, "annotations": NAMED, "trusted": True}


def published(registry: Registry, *, needed: bool = True, **more: Any) -> str:
    inputs = {"ref": f"{registry.address}/a/wheel:x1", "needed": needed, **TRUSTED, "found": None}
    result = FindPublished().create({**inputs, **more})
    assert result.outs is not None
    assert not {"username", "password"} & set(result.outs)
    answer: str = result.outs["found"]
    return answer


def test_published_product_is_returned_by_digest(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    assert published(registry) == f"{registry.address}/a/wheel@{digest}"
    assert registry.requests == ["HEAD /v2/a/wheel/manifests/x1"]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_published_without_a_readable_product_is_empty(registry: Registry, status: int) -> None:
    registry.digests["a/wheel:x1"] = status
    assert published(registry) == ""


BROKEN = [
    ([], "127.0.0.1:9", r"request to 127\.0\.0\.1:9 failed: .*Connection refused"),
    ([], "nowhere.invalid", r"request to nowhere\.invalid failed: .*(resolve|resolution)"),
    ([503] * 9, "", r"the registry responds with an error \(503\)"),
]


@pytest.mark.parametrize(("refusals", "address", "reason"), BROKEN)
def test_published_needed_without_an_answer_raises(
    registry: Registry, refusals: list[int], address: str, reason: str
) -> None:
    registry.refusals, registry.address = refusals, address or registry.address
    hint = "" if refusals else r" \(where only the Docker engine knows the way: set HTTPS_PROXY here too, .*\)"
    message = rf"/a/wheel:x1: {reason}.*; nothing is built that could not be pushed there{hint}$"
    with pytest.raises(SlipwayError, match=message):
        published(registry)


@pytest.mark.parametrize(("refusals", "address", "reason"), BROKEN)
def test_published_unneeded_without_an_answer_warns(
    registry: Registry, capsys: pytest.CaptureFixture[str], refusals: list[int], address: str, reason: str
) -> None:
    registry.refusals, registry.address = refusals, address or registry.address
    assert published(registry, needed=False) == ""
    assert re.fullmatch(
        rf"warning: .*/a/wheel:x1: {reason}.*; this build product is built anew\n", capsys.readouterr().err
    )


def test_published_with_an_untrusted_registry_warns(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """As one without HTTPS in a local network."""
    registry.address = registry.address.replace("127.0.0.1", "127.1")  # no loopback by its name, and so asked in HTTPS
    assert published(registry) == ""
    assert " failed: " in capsys.readouterr().err


def test_published_login_is_used_and_not_kept(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    registry.token, registry.login = "t", ("me", "hunter2")
    assert published(registry, username="me", password="hunter2").endswith(digest)


@pytest.mark.parametrize("token", ["t", None])
def test_published_needed_with_a_wrong_login_raises(registry: Registry, token: str | None) -> None:
    registry.token, registry.login = token, ("me", "hunter2")
    with pytest.raises(
        SlipwayError, match=r"requires a login .* \(401\); nothing is built that could not be"
    ) as caught:
        published(registry, username="me", password="wrong")
    assert "wrong" not in str(caught.value)
    assert published(registry) == ""  # as anybody, who may see none


def test_published_refresh_drops_and_finds_products(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    name = f"{registry.address}/a/wheel"
    kept: dict[str, Any] = {"ref": f"{name}:x1", **TRUSTED, "found": f"{name}@{digest}"}
    assert FindPublished().read(kept["ref"], kept).outs == kept
    registry.refusals = [401]
    assert FindPublished().read(kept["ref"], kept).outs == kept
    del registry.manifests[digest]
    registry.digests["a/wheel:x1"] = 404
    assert FindPublished().read(kept["ref"], kept).outs == kept | {"found": ""}
    assert FindPublished().read(kept["ref"], kept | {"found": ""}).outs == kept | {"found": ""}
    registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    assert FindPublished().read(kept["ref"], kept | {"found": ""}).outs == kept


@pytest.mark.parametrize("status", [0, 10, 12, 1])
def test_published_with_a_signer_takes_only_signed_products(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    """By a stand-in of cosign: what it verifies is in tests/engine/test_signing.py."""
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    name = f"{registry.address}/a/wheel"
    program = tmp_path / "cosign"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "Error: no signatures" >&2\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    signer = {"publicKey": "awskms:///k", "transparencyLog": False}
    named = {"signer": signer, "annotations": NAMED, "trusted": False}
    inputs = {"ref": f"{name}:x1", "needed": True, **named, "found": None}
    if status == 1:  # any other failure says nothing of the signature
        with pytest.raises(SlipwayError, match=r"no signatures; nothing is built that could not be pushed there$"):
            FindPublished().create(inputs)
        unneeded = FindPublished().create(inputs | {"needed": False}).outs
        assert unneeded is not None
        assert unneeded["found"] == ""
        assert capsys.readouterr().err.endswith("no signatures; this build product is built anew\n")
        return
    signed = not status
    result = FindPublished().create(inputs)
    assert result.outs == {"ref": f"{name}:x1", **named, "found": f"{name}@{digest}" if signed else ""}
    call = (tmp_path / "calls").read_text().splitlines()[0]
    stated = f"--annotations tag=x1 --annotations fingerprint={'1' * 64}"
    assert call.endswith(f"--key awskms:///k --insecure-ignore-tlog=true {stated} {name}@{digest}")
    reason = (
        "" if signed else f"warning: {name}@{digest}: cosign verify: no signatures; this build product is built anew\n"
    )
    assert capsys.readouterr().err == reason
    # A refresh takes nothing else, and builds nothing.
    assert FindPublished().read(f"{name}:x1", {**result.outs, "found": ""}).outs == result.outs
    assert not capsys.readouterr().err


def test_published_with_a_login_asks_no_helper_of_the_machine(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry.token, registry.login = "t", ("me", "hunter2")
    registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {registry.address: "gone"}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert "/a/wheel@sha256:" in published(registry, username="me", password="hunter2")
    with pytest.raises(SlipwayError, match=r"/a/wheel:x1: .*docker-credential-gone"):
        published(registry)


def test_published_diff_is_a_new_signer_and_no_new_login() -> None:
    """What was taken without a signer must be signed by who signs now."""
    kept = {"ref": "r.example/a/wheel:x1", "found": "r.example/a/wheel@sha256:1"}
    signer = {"publicKey": "awskms:///k"}
    assert not FindPublished().diff("", kept, kept | {"signer": None, "username": "u", "password": "p"}).changes
    assert FindPublished().diff("", kept, kept | {"signer": signer}).changes
    assert FindPublished().diff("", kept | {"signer": signer}, kept | {"signer": None}).changes
    assert not FindPublished().diff("", kept | {"signer": signer}, kept | {"signer": signer}).changes


def test_published_by_tag_alone_does_not_count(registry: Registry) -> None:
    """The registry must answer all the same if products are pushed there."""
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    assert published(registry, trusted=False, needed=False) == ""
    assert registry.requests == []
    assert published(registry, trusted=False) == ""
    assert registry.requests == ["HEAD /v2/a/wheel/manifests/x1"]
    taken: dict[str, Any] = {
        "ref": f"{registry.address}/a/wheel:x1",
        "signer": None,
        "trusted": False,
        "found": f"{registry.address}/a/wheel@{digest}",
    }
    assert FindPublished().read(taken["ref"], taken).outs == taken
    assert FindPublished().read(taken["ref"], taken | {"found": ""}).outs == taken | {"found": ""}


def test_published_with_another_trust_or_fingerprint_is_changed() -> None:
    signer = {"publicKey": "awskms:///k"}
    now = {"ref": "r.example/a/wheel:x1", "signer": signer, "annotations": NAMED, "trusted": False}
    assert not FindPublished().diff("", now, now).changes
    assert FindPublished().diff("", now, now | {"trusted": True}).changes
    assert FindPublished().diff("", now, now | {"annotations": NAMED | {"fingerprint": "2" * 64}}).changes


def test_published_check_says_once_why_products_are_built(capsys: pytest.CaptureFixture[str]) -> None:
    new = {"ref": "r.example/acme/wheel:x1", "signer": None, "annotations": NAMED, "trusted": False}
    for olds, more in (
        (new, {}),
        ({}, {"trusted": True}),
        ({}, {"signer": {"publicKey": "awskms:///k"}}),
    ):
        assert FindPublished().check(olds, new | more).inputs == new | more
    assert capsys.readouterr().err == ""
    for name in ("wheel", "source"):
        FindPublished().check({}, new | {"ref": f"r.example/acme/{name}:x1"})
    assert capsys.readouterr().err == (
        "build products are built and not taken from r.example/acme, where others may push: set slipway:signing, or "
        "slipway:trustRegistry: true\n"
    )
