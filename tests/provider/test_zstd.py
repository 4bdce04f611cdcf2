"""Layers that the provider compresses with zstd, in a real registry and for a real engine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import docker
import pytest
import zstandard
from google.protobuf import empty_pb2

from containers.engine import image_files
from containers.engine.connection import Address
from containers.engine.engine import Engine, image_archive, load
from containers.engine.image_files import EngineImage
from containers.errors import SlipwayError
from containers.registry.client import Repository
from tests.fakes.broken_connections import Cutting
from tests.fakes.loopback import run_server
from tests.fakes.registry import serve
from tests.helpers import empty_engine, registry_api
from tests.helpers.needs import lack, needs
from tests.provider.conftest import PASSWORD, USER, Registry, private_registry
from tests.provider.plugin import SELECTED, Failure, Plugin, started
from tests.provider.test_image import Maker, manifest
from toolchain.provider.provider import UPDATE_SETTINGS
from toolchain.provider.provider_base import Properties, Secret

pytestmark = pytest.mark.skipif(SELECTED != "embedded", reason="the official provider is refused before an update")

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
TWO = "FROM scratch\nCOPY a /\nCOPY b /\n"
SIZE = 3_000_000


@pytest.fixture
def plugin(tmp_path: Path, docker_host: str) -> Iterator[Plugin]:
    """A plugin of its own, with records of its own."""
    with started(tmp_path) as running:
        running.configure(host=docker_host)
        yield running


@pytest.fixture
def maker(plugin: Plugin, engine: docker.DockerClient, tmp_path: Path, repository: str) -> Iterator[Maker]:
    folder = tmp_path / "context"
    folder.mkdir()
    value = Maker(plugin, engine, folder, repository)
    yield value
    for name in value.images:
        engine.images.remove(name, force=True)


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the test's own, which has nothing."""
    (tmp_path / "registry").mkdir()
    with private_registry(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture(scope="module")
def puller() -> Iterator[docker.DockerClient]:
    """An engine without any image."""
    with empty_engine.started() as host:
        yield docker.DockerClient(base_url=host)


def in_containerd(engine: docker.DockerClient) -> bool:
    return ["driver-type", "io.containerd.snapshotter.v1"] in (engine.info().get("DriverStatus") or [])


def own_store(engine: docker.DockerClient) -> None:
    """Skip the test that calls where containerd keeps the images: the provider then leaves out what the test shows."""
    if in_containerd(engine):
        lack("an engine that keeps images in its own store")


def pulled(puller: docker.DockerClient, name: str) -> bool:
    """Return whether an engine pulls an image that it lacks, and finds each layer to be of its diff id."""
    image = puller.images.pull(name)
    puller.images.remove(name, force=True)
    return bool(image.attrs["RootFS"]["Layers"])


def push(maker: Maker, files: dict[str, str], level: int = 3, **inputs: Any) -> Properties:
    """Build an image and push it with zstd."""
    name = inputs.get("imageName", f"{maker.name}:v1")
    maker.plugin.invoke(UPDATE_SETTINGS, {"levels": {name: level}})
    return maker.create(files, **inputs)


def blob(name: str, digest: str) -> bytes:
    host, _, path = name.partition("/")
    return registry_api.fetch(f"{host}/{path}/blobs/{digest}", "*/*")


def two_layers(maker: Maker) -> dict[str, str]:
    """Return the files of an image with two layers that do not compress."""
    for name in "ab":
        (maker.folder / name).write_bytes(os.urandom(SIZE))
    return {"Dockerfile": TWO}


def containers(maker: Maker, image: str) -> list[dict[str, Any]]:
    """Return the containers of an image, without asking for any: an engine that reads one's files does not answer."""
    listed: list[dict[str, Any]] = maker.engine.api.containers(all=True, filters={"ancestor": image})
    return listed


def records(maker: Maker) -> list[Path]:
    return sorted((maker.folder.parent / ".slipway/layers").glob("*.json"))


def test_pushed_image_is_oci_with_zstd_layers(maker: Maker) -> None:
    """Each blob is the archive of its diff id, and the configuration is the engine's own."""
    outputs = push(maker, {**two_layers(maker), "c": "x"})
    digest, content = manifest(f"{maker.name}:v1")
    assert outputs["repoDigest"] == f"{maker.name}@{digest}"
    assert content["mediaType"] == MANIFEST
    assert [layer["mediaType"] for layer in content["layers"]] == [LAYER, LAYER]
    config = json.loads(blob(maker.name, content["config"]["digest"]))
    for layer, diff_id in zip(content["layers"], config["rootfs"]["diff_ids"], strict=True):
        body = blob(maker.name, layer["digest"])
        assert len(body) == layer["size"]
        archive = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        assert f"sha256:{hashlib.sha256(archive).hexdigest()}" == diff_id
    if not in_containerd(maker.engine):
        assert maker.engine.images.get(f"{maker.name}:v1").id == content["config"]["digest"]


def test_pushed_image_is_known_to_the_engine_by_digest(maker: Maker) -> None:
    """What is built on it by digest pulls nothing."""
    own_store(maker.engine)
    outputs = push(maker, two_layers(maker))
    known = maker.engine.images.get(outputs["repoDigest"])
    assert known.id == maker.engine.images.get(f"{maker.name}:v1").id
    child = push(
        maker, {"Dockerfile": f"FROM {outputs['repoDigest']}\nCOPY c /\n", "c": "x"}, imageName=f"{maker.name}-child:v1"
    )
    layers = manifest(f"{maker.name}-child:v1")[1]["layers"]
    assert layers[:2] == manifest(f"{maker.name}:v1")[1]["layers"]
    assert child["repoDigest"].startswith(f"{maker.name}-child@sha256:")


def test_second_push_has_equal_bytes_without_records(maker: Maker) -> None:
    """What is compressed anew has the digest that it had; another level has another."""
    files = two_layers(maker)
    first = push(maker, files)
    shutil.rmtree(maker.folder.parent / ".slipway")
    again = push(maker, files, imageName=f"{maker.name}-again:v1")
    assert again["repoDigest"].partition("@")[2] == first["repoDigest"].partition("@")[2]
    other = push(maker, files, level=19, imageName=f"{maker.name}-other:v1")
    assert other["repoDigest"].partition("@")[2] != first["repoDigest"].partition("@")[2]


@pytest.fixture(scope="module")
def old_engine() -> Iterator[str]:
    """An engine of this machine's own release, which cannot pull zstd where that is Docker 20.10."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLIPWAY_DOCKER_ENGINE", "installed")
            host = stack.enter_context(empty_engine.started())
        yield host


def test_engine_of_20_10_pushes_and_builds_on_it(
    tmp_path: Path, old_engine: str, puller: docker.DockerClient, private: Registry
) -> None:
    """It has no use for the layers that it does not have to pull; what it pushes, a newer engine pulls."""
    with started(tmp_path) as plugin:
        plugin.configure(host=old_engine)
        engine = docker.DockerClient(base_url=old_engine)
        (tmp_path / "context").mkdir()
        maker = Maker(plugin, engine, tmp_path / "context", f"{private.address}/old")
        parent = push(maker, two_layers(maker))["repoDigest"]
        files = {"Dockerfile": f"FROM {parent}\nCOPY c /\n", "c": "x"}
        push(maker, files, imageName=f"{maker.name}-child:v1")
        assert manifest(f"{maker.name}-child:v1")[1]["layers"][:2] == manifest(f"{maker.name}:v1")[1]["layers"]
        assert pulled(puller, f"{maker.name}-child:v1")
        for name in (f"{maker.name}-child:v1", f"{maker.name}:v1"):
            engine.images.remove(name, force=True)
        if engine.version()["Version"].startswith("20.10"):
            lines = list(engine.api.pull(maker.name, tag="v1", stream=True, decode=True))
            assert any("error" in line for line in lines), "it pulls zstd: the documentation says that it cannot"


def test_records_spare_a_second_push_of_layers(maker: Maker, private: Registry) -> None:
    """Only what changed goes up: neither an equal layer nor what another repository of the registry has."""
    files = two_layers(maker)
    with Cutting(private.address, None) as way, run_server(way):
        push(maker, files, imageName=f"{way.address}/a:v1")
        assert way.sent > 2 * SIZE
        way.sent = 0
        push(maker, files, imageName=f"{way.address}/a:v2")
        push(maker, files, imageName=f"{way.address}/b:v1")
        assert way.sent < SIZE / 10
        (maker.folder / "b").write_bytes(os.urandom(SIZE))
        push(maker, files, imageName=f"{way.address}/a:v3")
        assert SIZE < way.sent < 1.2 * SIZE


def test_broken_push_keeps_the_layers_that_it_pushed(
    maker: Maker, private: Registry, puller: docker.DockerClient
) -> None:
    """The error is one line. The next push sends no more than the layer that was not there."""
    files = two_layers(maker)
    middle = (maker.folder / "b").read_bytes()[SIZE // 2 :][:32]  # random bytes do not compress: they go up as they are
    with Cutting(private.address, marker=middle) as way, run_server(way):
        with pytest.raises(Failure) as failure:
            push(maker, files, imageName=f"{way.address}/a:v1")
        error = str(failure.value)
        assert error.startswith(f"error pushing image {way.address}/a:v1: ")
        assert "\n" not in error
        assert error.endswith("The image is built; the next run pushes it.")
        assert registry_api.send("GET", f"{private.address}/a/manifests/v1").status_code == 404
        way.marker, way.sent = None, 0
        push(maker, files, imageName=f"{way.address}/a:v1")
        assert SIZE < way.sent < 1.2 * SIZE
    assert pulled(puller, f"{private.address}/a:v1")


def test_connection_that_breaks_once_is_tried_again(
    maker: Maker, private: Registry, puller: docker.DockerClient
) -> None:
    with Cutting(private.address, SIZE) as way, run_server(way):

        def mend() -> None:
            while way.sent <= SIZE:
                time.sleep(0.01)
            way.limit = None

        threading.Thread(target=mend, daemon=True).start()
        push(maker, two_layers(maker), imageName=f"{way.address}/a:v1")
    assert pulled(puller, f"{private.address}/a:v1")


@pytest.mark.parametrize("damage", ["another blob", "no blob", "cut off", "empty", "a list"])
def test_damaged_record_is_not_believed(
    maker: Maker, private: Registry, puller: docker.DockerClient, damage: str
) -> None:
    files, name = two_layers(maker), f"{private.address}/a:v1"
    first = push(maker, files, imageName=name)
    texts = {record: record.read_text() for record in records(maker)}
    for record, text in texts.items():
        other = json.loads(next(each for each in texts.values() if each != text))
        damaged = {
            "another blob": json.dumps({**json.loads(text), "digest": other["digest"], "size": other["size"]}),
            "no blob": json.dumps({**json.loads(text), "digest": f"sha256:{'0' * 64}"}),
            "cut off": text[: len(text) // 2],
            "empty": "",
            "a list": "[1]",
        }[damage]
        record.write_text(damaged)
    again = push(maker, files, imageName=f"{private.address}/a:v2")
    assert again["repoDigest"] == first["repoDigest"]
    assert pulled(puller, f"{private.address}/a:v2")


def test_record_of_a_deleted_blob_is_pushed_again(maker: Maker, private: Registry, puller: docker.DockerClient) -> None:
    files, name = two_layers(maker), f"{private.address}/a:v1"
    first = push(maker, files, imageName=name)
    private.stop()
    shutil.rmtree(private.folder / "data/docker")
    private.start()
    assert push(maker, files, imageName=name) == first
    assert pulled(puller, name)


@pytest.mark.parametrize("status", [400, 415])
def test_registry_without_oci_images_is_one_line(maker: Maker, status: int) -> None:
    with serve() as registry:
        registry.unknown[MANIFEST] = status
        with pytest.raises(Failure) as failure:
            push(maker, two_layers(maker), imageName=f"{registry.address}/a:v1")
        assert "does not take an OCI image whose layers are compressed with zstd" in str(failure.value)
        assert "leave slipway:compression out" in str(failure.value)
        assert "\n" not in str(failure.value)


def test_manifest_of_a_layer_that_is_gone_says_so(private: Registry) -> None:
    """Of a manifest that a registry refuses for its format, the status is the same."""
    lost = {"mediaType": LAYER, "digest": f"sha256:{'0' * 64}", "size": 1}
    body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": lost, "layers": [lost]}).encode()
    with pytest.raises(
        SlipwayError, match=r"a:v1: the registry has lost a layer of the image; publish .* again \(400\)$"
    ):
        Repository(f"{private.address}/a:v1").put("v1", body, MANIFEST, {400: "takes no zstd"})


def test_registry_without_the_repository_is_told_so(maker: Maker) -> None:
    """What refuses a blob does not refuse its compression."""
    with serve() as registry:
        registry.uploads = [404] * 12
        with pytest.raises(Failure, match="the registry has no such repository") as failure:
            push(maker, two_layers(maker), imageName=f"{registry.address}/a:v1")
        assert "slipway:compression" not in str(failure.value)


def test_wrong_password_names_the_login(maker: Maker, locked_registry: Registry) -> None:
    name = f"{locked_registry.address}/parity/{maker.folder.parent.name}:v1"
    login = {"server": locked_registry.address, "username": USER, "password": Secret("wrong-canary")}
    files = two_layers(maker)
    with pytest.raises(Failure, match="the registry rejected the login") as failure:
        push(maker, files, imageName=name, registry=login)
    assert "wrong-canary" not in str(failure.value)
    outputs = push(maker, files, imageName=name, registry={**login, "password": Secret(PASSWORD)})
    assert outputs["repoDigest"].startswith(name.rpartition(":")[0])


def test_full_disk_here_is_one_line(
    tmp_path: Path, docker_host: str, engine: docker.DockerClient, repository: str
) -> None:
    """A compressed layer waits in TMPDIR."""
    needs("root", "mounts")
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(full)], check=True)
    try:
        with started(tmp_path, environment={"TMPDIR": str(full)}) as plugin:
            plugin.configure(host=docker_host)
            (tmp_path / "context").mkdir()
            maker = Maker(plugin, engine, tmp_path / "context", repository)
            with pytest.raises(Failure, match=f"cannot be written in {full}: No space left on device; let TMPDIR name"):
                push(maker, two_layers(maker))
    finally:
        subprocess.run(["umount", str(full)], check=True)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of an archive; its owner, mode and time are unusual."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    info.mode, info.uid, info.mtime = 0o6751, 1234567, 1_234_567_890
    return info, content


ODD = [
    member("z/first", content=os.urandom(SIZE // 4)),
    member("a-hard-link", tarfile.LNKTYPE, "z/first"),
    member("link", tarfile.SYMTYPE, "../nowhere"),
    member("empty"),
    member("pipe", tarfile.FIFOTYPE),
    member("caf\udce9 \udcff", content=b"a name that is not UTF-8"),
    member("n" * 200 + "/" + "m" * 200, content=b"a long name"),
    member("zeros", content=bytes(SIZE)),
    member("folder/below", content=b"1"),
    member("gone/below", content=b"2"),
]
"""What an archive of a layer may have."""
OVER = [member("gone", content=b"a file in place of a folder"), member("folder", tarfile.SYMTYPE, "z"), member("link")]


@pytest.fixture
def odd(maker: Maker, docker_host: str) -> EngineImage:
    """An image with layers of all kinds of files, and of what they replace."""
    own_store(maker.engine)
    for name, members in (("a", ODD), ("b", OVER)):
        with tarfile.open(maker.folder / f"{name}.tar", "w", errors="surrogateescape") as archive:
            for info, content in members:
                archive.addfile(info, io.BytesIO(content))
    maker.create({"Dockerfile": "FROM scratch\nADD a.tar /\nADD b.tar /\nCOPY Dockerfile /last\n"})
    return EngineImage.held(str(maker.engine.images.get(f"{maker.name}:v1").id), Engine(Address(docker_host)))


@pytest.mark.parametrize("places", [(0, 1, 2), (2,), (0,)], ids=str)
def test_wanted_layers_alone_are_read_from_the_engine(maker: Maker, odd: EngineImage, places: tuple[int, ...]) -> None:
    """Each is the archive of its diff id, and no container is left."""
    wanted = {odd.diff_ids[place] for place in places}
    left, notes = {*wanted}, list[str]()
    for name, _, content in image_files.files(odd, left, notes.append):
        assert f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}" == name
        left.remove(name)
    assert (left, notes) == (set(), [])
    assert containers(maker, odd.identity) == []


def test_files_that_are_not_read_to_their_end_leave_no_container(maker: Maker, odd: EngineImage) -> None:
    with closing(image_files.files(odd, {odd.identity, *odd.diff_ids}, print)) as files:
        name = next(files).name
        assert f"sha256:{posixpath.basename(name)}" == odd.identity
        next(files).content.read(10)
        assert len(containers(maker, odd.identity)) == 1
    assert containers(maker, odd.identity) == []


def test_layer_in_another_order_comes_with_the_image(maker: Maker, docker_host: str) -> None:
    """An engine that has got a layer lists its files in its own order: the digest tells, and the image is saved."""
    own_store(maker.engine)
    layer = image_archive({"z": os.urandom(16), "a": b"2"})
    diff_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}})
    described = [{"Config": "config.json", "RepoTags": [f"{maker.name}:v1"], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": config.encode(), "manifest.json": json.dumps(described).encode()}
    engine = Engine(Address(docker_host))
    load(engine, image_archive(files), 60)
    maker.images.add(f"{maker.name}:v1")
    image = EngineImage.held(str(maker.engine.images.get(f"{maker.name}:v1").id), engine)
    notes: list[str] = []
    read = [file.content.read() for file in image_files.files(image, {*image.diff_ids}, notes.append)]
    assert (layer in read, len(notes)) == (True, 1)
    assert containers(maker, image.identity) == []


def test_cancel_ends_the_push(maker: Maker) -> None:
    with serve() as registry, ThreadPoolExecutor(1) as pool:
        registry.silent.set()
        push_ = pool.submit(push, maker, two_layers(maker), imageName=f"{registry.address}/a:v1")
        while not any(line.startswith("Pushing") or "Asking" in line for line in maker.plugin.lines()):
            time.sleep(0.05)
        maker.plugin.call("Cancel", empty_pb2.Empty())
        registry.silent.clear()
        with pytest.raises(Failure, match="cancelled"):
            push_.result(timeout=20)


def test_signal_in_a_push_leaves_no_container(maker: Maker) -> None:
    """The registry says nothing, and so many layers wait for it that the push reads no other one."""
    own_store(maker.engine)
    files = {name: f"{name} of {maker.name}" for name in "abcdefghij"}  # of no image that another test removes
    files["Dockerfile"] = "FROM scratch\n" + "".join(f"COPY {name} /\n" for name in "abcdefghij")
    maker.create(files, skipPush=True)
    image = str(maker.engine.images.get(f"{maker.name}:v1").id)
    with serve() as registry, ThreadPoolExecutor(1) as pool:
        registry.silent.set()
        push_ = pool.submit(push, maker, files, imageName=f"{registry.address}/a:v1")
        while not containers(maker, image):
            assert not push_.done()
            time.sleep(0.05)
        maker.plugin.process.terminate()
        assert maker.plugin.process.wait(timeout=60) == 0
        assert [(each["State"], each["Status"], maker.plugin.stderr) for each in containers(maker, image)] == []
        registry.silent.clear()
        with pytest.raises(Failure):
            push_.result(timeout=20)
