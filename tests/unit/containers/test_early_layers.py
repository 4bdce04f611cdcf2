"""The archives of an image: where the engine takes none of its lowest layers or has no room, and with containerd."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from containers.engine import early_layers, zstd_push
from containers.engine.connection import Address
from containers.engine.early_layers import EngineImage
from containers.engine.engine import EngineError, Silent
from containers.errors import SlipwayError


@pytest.mark.parametrize("refusal", [EngineError(500, "no"), Silent("busy"), SlipwayError("no JSON")], ids=str)
def test_all_layers_come_where_the_engine_takes_no_lowest(refusal: SlipwayError) -> None:
    asked: list[str] = []

    @contextmanager
    def request(method: str, path: str, **_: object) -> Iterator[object]:
        asked.append(f"{method} {path}")
        if path == "/images/load":
            raise refusal
        yield SimpleNamespace(text=lambda: json.dumps([{"Size": 10**9}] * 4))

    engine: Any = SimpleNamespace(address=Address("unix:///x"), json=lambda _: {}, request=request)
    diff_ids = [f"sha256:{layer}" for layer in "abcd"]
    with early_layers.archives(EngineImage("sha256:1", diff_ids, engine), diff_ids) as archives:
        assert len([*archives]) == 1
    assert {"POST /images/load", "GET /images/sha256:1/get"} <= {*asked}


FULL = "write /var/lib/docker/tmp/docker-export-1/layer.tar: no space left on device"


@pytest.mark.parametrize(("message", "times", "ends"), [(FULL, 1, ""), (FULL, 2, FULL), ("no", 1, "no")])
def test_full_disk_has_all_layers_written_again_alone(message: str, times: int, ends: str) -> None:
    there: set[str] = set()
    notes: list[str] = []
    read = threading.Event()
    refusals = [EngineError(500, message)] * times

    @contextmanager
    def request(method: str, path: str, **_: object) -> Iterator[object]:
        if method == "GET" and path.endswith("/get"):
            if path == "/images/sha256:1/get" and refusals:
                assert len(refusals) < times or read.wait(20)
                raise refusals.pop()
            assert not there  # the engine has room for one archive
            there.add(path)
        try:
            yield SimpleNamespace(text=lambda: json.dumps([{"Size": 10**9}] * 4), messages=list)
        finally:
            there.discard(path)

    engine: Any = SimpleNamespace(address=Address("unix:///x"), json=lambda _: {}, request=request)
    diff_ids = [f"sha256:{layer}" for layer in "abcd"]
    with (
        pytest.raises(EngineError, match=ends) if ends else nullcontext(),
        early_layers.archives(EngineImage("sha256:1", diff_ids, engine), diff_ids, notes.append) as archives,
    ):
        next(archives)
        read.set()
        assert len([*archives]) == 1
    assert len(notes) == (message == FULL)


def test_configuration_is_no_manifest_that_has_the_image_id() -> None:
    """With containerd's store the id is the manifest's digest, and an archive of Docker 28 has both documents."""
    manifest = json.dumps({"config": {"digest": "sha256:c"}, "layers": []}).encode()
    for diff_ids in (["sha256:a"], []):
        image = EngineImage(f"sha256:{hashlib.sha256(manifest).hexdigest()}", diff_ids, cast("Any", None))
        push = zstd_push._Push(image, *cast("Any", [None] * 6))
        assert push._is_configuration(json.dumps({"rootfs": {"diff_ids": diff_ids or None}}).encode())
        assert not push._is_configuration(manifest)
        assert not push._is_configuration(b'{"rootfs": {"diff_ids": ["sha256:b"]}}')
