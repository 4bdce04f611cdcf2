"""A layer that was read before is known: an inspection says the same of its images, and reads less of them."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from containers import user_cache
from containers.errors import SlipwayError
from containers.image import known_layers, registry_image
from containers.image.binaries import contents, inspection
from containers.registry import attempts
from containers.registry.client import Manifest, Repository
from stacks.versions import cuda_toolkit
from tests.fakes.registry import Registry, compress, digest_of, serve
from tests.fuzzing.hostile_images import member
from tests.helpers.elf_writer import elf, loader
from tests.helpers.histories import histories
from tests.helpers.refusals import refusal_line

SITE = "opt/venv/lib/python3.11/site-packages"
NAMES = tuple(f"lib{letter}.so.1" for letter in "abcdef")
SYMBOLS = tuple(f"function_{number}" for number in range(6))


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry on loopback."""
    with serve() as registry:
        yield registry


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def library(choice: random.Random, name: str) -> bytes:
    """Return a library that needs others and their symbols, which the image may lack."""
    some = choice.sample(NAMES, choice.randint(0, 2))
    return elf(
        name,
        some,
        undefined=choice.sample(SYMBOLS, choice.randint(0, 2)),
        defined=choice.sample(SYMBOLS, choice.randint(0, 3)),
        rpath=choice.choice(["", "$ORIGIN", "/opt/lib"]),
    )


def files(choice: random.Random) -> Iterator[bytes]:
    """Yield the files of a layer: libraries, records of packages, scripts, configuration, links, and what it removes."""
    for name in choice.sample(NAMES, choice.randint(1, 4)):
        folder = choice.choice(["usr/lib64", "opt/lib", SITE])
        yield member(f"{folder}/{name}", library(choice, name), mode=0o755)
        yield from [
            b"",
            member(f"{folder}/{name}.2", kind=tarfile.LNKTYPE, linkname=f"{folder}/{name}"),
            member(f"{folder}/.wh.{choice.choice(NAMES)}"),
            member(f"{folder}/.wh..wh..opq"),
            member(f"{folder}/{choice.choice(NAMES)}", kind=tarfile.SYMTYPE, linkname=name),
        ][: choice.choice([1, 1, 2, 3])]
    package, version = choice.choice("pq"), choice.randint(1, 3)
    metadata = f"Name: {package}\nVersion: {version}\nRequires-Dist: {choice.choice('pq')}>={choice.randint(1, 3)}\n"
    yield member(f"{SITE}/{package}-{version}.dist-info/METADATA", metadata.encode())
    lines = f"{choice.choice(NAMES)},sha256={choice.choice('ab') * 43},3\n"
    yield member(f"{SITE}/{package}-{version}.dist-info/RECORD", lines.encode())
    yield member("etc/ld.so.conf", choice.choice([b"/opt/lib\n", b"include /etc/*.conf\n", b""]))
    yield member("usr/bin/run", choice.choice([b'#!/bin/sh\nexec "$@"\n', b"#!/absent\n", b""]), mode=0o755)


def layer(choice: random.Random) -> bytes:
    return b"".join(files(choice)) + bytes(1024)


def base() -> bytes:
    """Return a layer with glibc's loader."""
    link = member("lib64", kind=tarfile.SYMTYPE, linkname="usr/lib64")
    return member("usr/lib64/ld-linux-x86-64.so.2", loader(), mode=0o755) + link + bytes(1024)


def result(reference: str) -> Mapping[str, Any]:
    """Return the inspection of an image."""
    image = registry_image.fetch(reference)
    return inspection.inspect(image, inspection.Question(cuda_toolkit, requirements=True)).as_json()


def downloads(registry: Registry, layers: Sequence[bytes]) -> int:
    """Return how many layers were downloaded, and forget the requests."""
    blobs = {f"GET /v2/a/b/blobs/{digest_of(compress(each))}" for each in layers}
    count = sum(request in blobs for request in registry.requests)
    registry.requests.clear()
    return count


@pytest.mark.parametrize("seed", range(histories(60)))
def test_inspection_of_known_layers_is_equal(registry: Registry, tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    parent = [base(), *(layer(choice) for _ in range(choice.randint(1, 3)))]
    child = [*parent, *(layer(choice) for _ in range(choice.randint(1, 2)))]
    config = {"Cmd": ["/usr/bin/run"], "Env": ["LD_LIBRARY_PATH=/opt/lib"]}
    reference = registry.image("a/b:child", child, config)
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "other")  # the fixture's patch undoes it
    unknown = result(reference)
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    result(registry.image("a/b:parent", parent, config))
    registry.requests.clear()
    assert result(reference) == unknown
    assert downloads(registry, child) == len(set(child) - set(parent))
    assert result(reference) == unknown
    assert downloads(registry, child) == 0


def test_known_layer_of_other_code_is_read(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = registry.image("a/b:1", [base()])
    result(reference)
    registry.requests.clear()
    monkeypatch.setattr(known_layers, "_code", lambda: "of a later release")
    result(reference)
    assert downloads(registry, [base()]) == 1


def test_code_of_known_layers_has_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reader.py", "image/table.toml", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(known_layers, "_CODE", tmp_path)

    def changed(name: str) -> bool:
        before = known_layers._code.__wrapped__()
        (tmp_path / name).write_text((tmp_path / name).read_text() + "2")
        return known_layers._code.__wrapped__() != before

    assert [changed(name) for name in ("reader.py", "image/table.toml", "notes.txt")] == [True, True, False]


def test_known_layer_that_the_registry_lacks_is_refused(registry: Registry) -> None:
    reference = registry.image("a/b:1", [base()])
    result(reference)
    digest = registry_image.fetch(reference).layers[0].digest
    del registry.blobs[digest]
    with pytest.raises(SlipwayError, match=f"{digest}: no such image, tag or digest"):
        result(reference)


def test_known_layer_larger_than_stated_is_refused(registry: Registry) -> None:
    reference = registry.image("a/b:1", [base()])
    result(reference)
    media_type, body = registry.manifests[reference.partition("@")[2]]
    manifest = json.loads(body)
    manifest["layers"][0]["size"] -= 1
    registry.manifest("a/b:2", media_type, manifest)
    with pytest.raises(SlipwayError, match="has more bytes than its manifest states"):
        result(f"{registry.address}/a/b:2")


def test_known_layer_of_another_media_type_is_read(registry: Registry) -> None:
    reference = registry.image("a/b:1", [base()])
    result(reference)
    media_type, body = registry.manifests[reference.partition("@")[2]]
    manifest = json.loads(body)
    manifest["layers"][0]["mediaType"] += ".unknown"
    registry.manifest("a/b:2", media_type, manifest)
    with pytest.raises(SlipwayError, match="unknown media type"):
        result(f"{registry.address}/a/b:2")


def test_corrupt_layer_is_not_kept(registry: Registry) -> None:
    reference = registry.image("a/b:1", [base()])
    digest = registry_image.fetch(reference).layers[0].digest
    registry.blobs[digest] = b"other bytes"
    with pytest.raises(SlipwayError, match="a blob is corrupt"):
        result(reference)
    assert not user_cache.folder().exists()


class _Forged:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("forged",)


def test_kept_value_of_another_class_is_not_loaded(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = registry.image("a/b:1", [base()])
    expected = result(reference)
    [kept] = user_cache.folder().iterdir()
    key = kept.name.split("-")[1]
    kept.unlink()
    content = io.BytesIO(pickle.dumps((1, {"entries": _Forged()})))
    user_cache.keep_content("layer", key, zstandard.compress(content.getvalue()))
    assert result(reference) == expected
    assert not (tmp_path / "forged").exists()


class Stalled(Repository):
    """A repository whose first layer is gone as soon as another thread waits for it to send the second one."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.waits_now, self.ended = threading.Event(), list[str]()

    def blob(self, digest: str, *_: Any) -> Any:
        if digest == digest_of(b"1"):
            assert self.waits_now.wait(20)
            raise SlipwayError("gone")
        busy = self._transport.attempts()
        self.waits_now.set()
        try:
            return busy.again(None)
        except SlipwayError as error:
            self.ended.append(str(error))
            raise


def test_wait_for_a_layer_ends_with_the_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry may ask for a minute, three times; Ctrl-C and an error are not kept waiting by another layer's."""
    monkeypatch.setattr(attempts, "_WAITS", (20.0,))
    repository = Stalled("r.example/a/b:1")
    layers = tuple(registry_image.Layer(digest_of(each), 1, "", "application/x-tar", "") for each in (b"1", b"2"))
    manifest = Manifest(digest_of(b""), "", {}, b"")
    image = registry_image.Image(repository, manifest.digest, "linux/amd64", {}, layers, 1, manifest)
    assert refusal_line(contents.read, image) == "gone"
    assert repository.ended == ["r.example/a/b:1: nothing more is asked of r.example"]
    assert "nothing more is asked" in refusal_line(repository.exists)
