"""`slipway prune`: what no stack's state names goes, by a real registry; what one names stays."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import registry_api
from tests.helpers.json_shape import differing
from tests.helpers.pushed_image import MANIFEST, copy, push
from tests.toolchain.clone import Clone
from toolchain import verbs
from toolchain.checkout import Checkout
from toolchain.parts import docker_registry, unused_space


@pytest.fixture
def checkout(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    """A checkout with a registry of its own, which runs."""
    monkeypatch.delenv("SLIPWAY_REGISTRY", raising=False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    part = docker_registry.get(clone.checkout)
    for name, value in part.env.items():  # the login among them
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", ":".join([*part.path, os.environ["PATH"]]))
    yield clone.checkout
    docker_registry.stop(clone.checkout)


def names(checkout: Checkout, *states: dict[str, str]) -> None:
    folder = checkout.backend / ".pulumi/stacks/slipway"
    folder.mkdir(parents=True, exist_ok=True)
    for number, state in enumerate(states):
        (folder / f"s{number}.json").write_text(json.dumps(state))


def tags(address: str, repository: str) -> set[str]:
    return set(registry_api.send("GET", f"{address}/{repository}/tags/list").json().get("tags") or [])


def test_prune_keeps_what_a_state_names_and_lists_first(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    address = docker_registry.own_address(checkout)
    assert address
    kept = push(f"{address}/slipway/torch:aaa-now", "now")
    digest = kept.rpartition("@")[2]
    copy(kept, f"{address}/slipway/torch:unchecked--aaa-now")
    copy(kept, f"{address}/slipway/torch:latest")
    push(f"{address}/slipway/torch:{digest.replace(':', '-')}.sig", "signature")
    push(f"{address}/slipway/torch:aaa-now-warm-0123abcd", "warm")
    push(f"{address}/slipway/torch:aaa-no-warm-0123abcd", "old warm")
    old = push(f"{address}/slipway/torch:aaa-no", "old")  # begins as the one that is named does
    push(f"{address}/slipway/torch:{old.rpartition('@')[2].replace(':', '-')}.sig", "old signature")
    by_tag = push(f"{address}/slipway/wheel:xbbb", "wheel")
    push(f"{address}/other/app:1", "app")
    push(f"{address}/docker.io/library/debian:bookworm-slim", "parent")
    names(checkout, {"ref": kept}, {"imageName": f"{address}/slipway/wheel:xbbb"})
    (checkout.state / "contexts/0123456789abcdef").mkdir(parents=True)
    before = tags(address, "slipway/torch")

    assert unused_space.prune(checkout, delete=False) == 0
    listed = capsys.readouterr().out
    assert tags(address, "slipway/torch") == before
    assert f"tag       {address}/slipway/torch:aaa-no\n" in listed
    assert f"tag       {address}/other/app:1\n" in listed
    assert f"tag       {address}/slipway/torch:unchecked--aaa-now\n" in listed
    assert "aaa-now-warm" not in listed
    assert "aaa-now\n" not in listed.replace("unchecked--aaa-now\n", "")
    assert "bookworm" not in listed
    assert "nothing is deleted" in listed
    assert (checkout.state / "contexts/0123456789abcdef").exists()

    assert unused_space.prune(checkout, delete=True) == 0
    assert docker_registry.own_address(checkout) == address
    assert tags(address, "slipway/torch") == {
        "aaa-now",
        "aaa-now-warm-0123abcd",
        "latest",
        f"{digest.replace(':', '-')}.sig",
    }
    assert tags(address, "slipway/wheel") == {"xbbb"}
    assert tags(address, "other/app") == set()
    assert tags(address, "docker.io/library/debian") == {"bookworm-slim"}
    for ref in (kept, by_tag):
        repository, _, name = ref.partition("/")[2].partition("@")
        response = registry_api.send("GET", f"{address}/{repository}/manifests/{name}", headers={"Accept": MANIFEST})
        config = response.json()["config"]["digest"]
        assert registry_api.send("GET", f"{address}/{repository}/blobs/{config}").ok
    blobs = list((docker_registry.storage(checkout) / "docker/registry/v2/blobs").rglob("data"))
    # Manifest and configuration of the image, its signature, one with warm layers, the wheel and the parent.
    assert len(blobs) == 2 * 5
    assert not (checkout.state / "contexts/0123456789abcdef").exists()
    capsys.readouterr()
    unused_space.prune(checkout, delete=False)
    assert "registry  0 of 5 tags, 0 MB in layers" in capsys.readouterr().out


def test_prune_names_the_state_of_a_deleted_stack(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    """Else nobody knows why its images stay: `slipway destroy` knows the stacks with a file alone."""
    names(checkout, {"repoDigest": "a"}, {"repoDigest": "b"}, {"registry": "c"})
    (checkout.root / "stacks/Pulumi.s0.yaml").touch()
    assert unused_space.prune(checkout, delete=False) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("state")]
    assert lines == ["state     s1 keeps its images: with stacks/Pulumi.s1.yaml, `slipway destroy s1` lets them go"]


def test_prune_as_json_is_alone_and_as_documented(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    address = docker_registry.own_address(checkout)
    push(f"{address}/other/app:1", "app")
    push(f"{address}/docker.io/library/debian:bookworm-slim", "parent")
    (checkout.state / "contexts/0123456789abcdef").mkdir(parents=True)
    monkeypatch.setattr(Checkout, "here", lambda: checkout)
    capfd.readouterr()
    for words in ([], ["--yes"]):
        assert verbs.main(["prune", "--json", *words]) == 0
        document = json.loads(capfd.readouterr().out)
        assert differing("prune", document) == []
        registry = document["registry"]
        assert (registry["address"], registry["tags"], registry["of"]) == (address, ["other/app:1"], 1)
        assert (document["contexts"]["count"], document["engine"]) == (1, None)
        assert (document["bytesAfter"] is None) == (not words)
    assert tags(str(address), "other/app") == set()


def test_prune_without_services_of_its_own_touches_none(
    clone: Clone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry and an engine of one's own, which the environment names, are left alone."""
    monkeypatch.setenv("SLIPWAY_REGISTRY", "registry.invalid:5000")
    clone.checkout.state.mkdir(exist_ok=True)
    assert unused_space.prune(clone.checkout, delete=True) == 0
    printed = capsys.readouterr().out
    assert "registry  Slipway's own does not run: left alone" in printed
    assert "engine    Slipway's own does not run: left alone" in printed


def test_prune_keeps_what_a_compressed_state_names(checkout: Checkout) -> None:
    """Pulumi compresses its states where ``PULUMI_DIY_BACKEND_GZIP`` is set."""
    address = docker_registry.own_address(checkout)
    assert address
    kept = push(f"{address}/slipway/torch:now", "now")
    folder = checkout.backend / ".pulumi/stacks/slipway"
    folder.mkdir(parents=True)
    (folder / "s.json.gz").write_bytes(gzip.compress(json.dumps({"ref": kept}).encode()))
    assert unused_space.prune(checkout, delete=True) == 0
    assert tags(address, "slipway/torch") == {"now"}


def test_prune_deletes_what_a_killed_prune_left(checkout: Checkout) -> None:
    """It was killed when it had deleted a tag, and not its manifest."""
    address = docker_registry.own_address(checkout)
    assert address
    push(f"{address}/slipway/torch:old", "old")
    registry = docker_registry.storage(checkout) / "docker/registry/v2"
    shutil.rmtree(registry / "repositories/slipway/torch/_manifests/tags/old")
    assert unused_space.prune(checkout, delete=True) == 0
    assert not list((registry / "blobs").rglob("data"))
    assert unused_space.prune(checkout, delete=True) == 0


def test_prune_goes_on_where_a_killed_one_ended(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a context, of a tag, and when the registry was about to collect."""
    address = docker_registry.own_address(checkout)
    assert address
    push(f"{address}/slipway/torch:old", "old")
    context = checkout.state / "contexts/0123456789abcdef"
    (context / "a").mkdir(parents=True)
    registry = docker_registry.storage(checkout) / "docker/registry/v2"
    tag = registry / "repositories/slipway/torch/_manifests/tags/half"
    (tag / "index").mkdir(parents=True)
    remove = shutil.rmtree

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def removed(path: Path, *words: Any, **options: Any) -> None:
        if (path / "a").exists():
            killed()
        remove(path, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", removed)
        with pytest.raises(KeyboardInterrupt):
            unused_space.prune(checkout, delete=True)
    assert not context.exists()  # a half of it would be built
    with monkeypatch.context() as patch:
        patch.setattr(docker_registry, "collect", killed)
        with pytest.raises(KeyboardInterrupt):
            unused_space.prune(checkout, delete=True)
    assert not tag.exists()
    assert list((registry / "blobs").rglob("data"))
    assert unused_space.prune(checkout, delete=True) == 0
    assert not list((registry / "blobs").rglob("data"))
    assert list(context.parent.iterdir()) == []


def test_prune_deletes_what_an_unfinished_push_left(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    """The first push of a repository was interrupted: one layer had arrived, another in part."""
    address = docker_registry.own_address(checkout)
    assert address
    kept = push(f"{address}/slipway/torch:now", "now")
    push(f"{address}/docker.io/library/debian:bookworm-slim", "parent")
    names(checkout, {"ref": kept})
    layers = [os.urandom(3_000_000), os.urandom(2_000_000)]
    for layer, ends in zip(layers, (True, False), strict=True):
        upload = registry_api.send("POST", f"{address}/slipway/half/blobs/uploads/").headers["Location"]
        part = registry_api.send("PATCH", upload, data=layer)
        assert part.ok
        if ends:
            digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
            assert registry_api.send("PUT", part.headers["Location"], params={"digest": digest}).ok
    registry = docker_registry.storage(checkout) / "docker/registry/v2"

    assert unused_space.prune(checkout, delete=False) == 0
    assert "registry  5 MB of pushes that did not end" in capsys.readouterr().out
    assert unused_space.prune(checkout, delete=True) == 0
    assert not list((registry / "repositories/slipway/half/_uploads").glob("*"))
    assert len(list((registry / "blobs").rglob("data"))) == 2 * 2
    assert tags(address, "slipway/torch") == {"now"}
    capsys.readouterr()
    unused_space.prune(checkout, delete=False)
    assert "did not end" not in capsys.readouterr().out


def prune_yes(monkeypatch: pytest.MonkeyPatch, checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(Checkout, "here", lambda: checkout)
    assert verbs.main(["prune", "--yes"]) == 1
    return capsys.readouterr().err


def test_prune_beside_an_update_deletes_nothing(
    checkout: Checkout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `pulumi up` has pushed, and writes its state later."""
    address = docker_registry.own_address(checkout)
    assert address
    push(f"{address}/slipway/torch:new", "new")
    folder = checkout.backend / ".pulumi/locks/organization/slipway/local"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(json.dumps({"pid": os.getpid(), "hostname": socket.gethostname()}))
    assert f"stack local is locked by a Pulumi (process {os.getpid()}" in prune_yes(monkeypatch, checkout, capsys)
    assert tags(address, "slipway/torch") == {"new"}


def test_prune_with_states_elsewhere_deletes_nothing(
    checkout: Checkout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = docker_registry.own_address(checkout)
    assert address
    push(f"{address}/slipway/torch:new", "new")
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://acme-states")
    assert "PULUMI_BACKEND_URL is s3://acme-states" in prune_yes(monkeypatch, checkout, capsys)
    assert tags(address, "slipway/torch") == {"new"}


def test_prune_with_buildkit_chosen_needs_no_buildx(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_BUILDKIT", "1")
    assert "Remove build cache" in unused_space._docker(clone.checkout, "builder", "prune", "--help")
