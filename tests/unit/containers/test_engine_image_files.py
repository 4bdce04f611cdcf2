"""The files of an image where its engine does not give layers one by one, and which of two documents is which."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from containers.engine import image_files, zstd_push
from containers.engine.connection import Address
from containers.engine.engine import EngineError, Silent
from containers.engine.image_files import EngineImage
from containers.errors import SlipwayError
from tests.helpers.every import every

OVERLAY = {"Name": "overlay2", "Data": {"UpperDir": "/l/b/diff", "LowerDir": "/l/a/diff"}}


class Saving:
    """An engine whose containers cannot be made or have nothing, and which saves an image of two layers."""

    def __init__(self, refusal: SlipwayError | None = None, driver: Any = None, host: str = "unix:///x") -> None:
        self.refusal, self.driver, self.address = refusal, driver, Address(host)
        self.requests: list[str] = []

    def json(self, path: str, _: object = None) -> Any:
        self.requests.append(path)
        if path == "/containers/create" and self.refusal:
            raise self.refusal
        return {"GraphDriver": self.driver, "DockerRootDir": "/d", "Id": "c"}

    @contextmanager
    def request(self, method: str, path: str, **_: object) -> Iterator[object]:
        self.requests.append(f"{method} {path}")
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for name in ("a", "b") if path.startswith("/images/") else ():
                archive.addfile(tarfile.TarInfo(f"{name}/layer.tar"))
        content.seek(0)
        yield content


def names(engine: Any, notes: list[str], count: int = 2) -> list[str]:
    """Return the names of the files of an image of some layers, all of which are wanted."""
    image = EngineImage("sha256:1", [f"sha256:{layer}" for layer in "abc"[:count]], engine, engine.driver or {})
    return [each.name for each in image_files.files(image, {*image.diff_ids}, notes.append)]


@every("refusal", [EngineError(403, "no mounts"), Silent("busy"), SlipwayError("no JSON")])
def test_engine_without_containers_saves_the_image(refusal: SlipwayError) -> None:
    """The line says why it took longer."""
    engine, notes = Saving(refusal, OVERLAY), list[str]()
    assert names(engine, notes) == ["a/layer.tar", "b/layer.tar"]
    [note] = notes
    assert note.endswith(f": {refusal}")


@every("driver, count", [(OVERLAY, 2), (OVERLAY, 3)])
def test_layers_that_are_not_there_come_of_a_saved_image(driver: Any, count: int) -> None:
    """Here the store has none of them, or another number of folders. The container goes in any case."""
    engine, notes = Saving(None, driver), list[str]()
    assert [name for name in names(engine, notes, count) if "/" in name] == ["a/layer.tar", "b/layer.tar"]
    assert len(notes) == 1
    assert engine.requests.count("/containers/create") == engine.requests.count("DELETE /containers/c")


@every(
    "refusals, asked",
    [
        ([EngineError(500, "unlinkat: device or resource busy"), Silent("busy")], 3),
        ([EngineError(404, "No such container")], 1),
        ([EngineError(403, "no deletions")] * 9, 3),
    ],
)
def test_container_that_the_engine_keeps_at_first_is_removed(
    refusals: list[SlipwayError], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(Saving):
        @contextmanager
        def request(self, method: str, path: str, **given: object) -> Iterator[object]:
            with super().request(method, path, **given) as answer:
                if method == "DELETE" and refusals:
                    raise refusals.pop(0)
                yield answer

    monkeypatch.setattr(image_files, "_PAUSE", 0)
    engine = Busy(None, OVERLAY)
    names(engine, [])
    assert engine.requests.count("DELETE /containers/c") == asked


@every("driver, host", [(None, "unix:///x"), ({"Name": "vfs", "Data": None}, "unix:///x"), (OVERLAY, "unix://pool")])
def test_engine_without_folders_is_not_asked_for_them(driver: Any, host: str) -> None:
    engine, notes = Saving(None, driver, host), list[str]()
    assert names(engine, notes) == ["a/layer.tar", "b/layer.tar"]
    assert (notes, "/containers/create" in engine.requests) == ([], False)


def test_configuration_is_no_manifest_that_has_the_image_id() -> None:
    """With containerd's store the id is the manifest's digest, and an archive of Docker 28 has both documents."""
    manifest = json.dumps({"config": {"digest": "sha256:c"}, "layers": []}).encode()
    for diff_ids in (["sha256:a"], []):
        image = EngineImage(f"sha256:{hashlib.sha256(manifest).hexdigest()}", diff_ids, cast("Any", None), {})
        push = zstd_push._Push(image, *cast("Any", [None] * 6))
        assert push._is_configuration(json.dumps({"rootfs": {"diff_ids": diff_ids or None}}).encode())
        assert not push._is_configuration(manifest)
        assert not push._is_configuration(b'{"rootfs": {"diff_ids": ["sha256:b"]}}')
