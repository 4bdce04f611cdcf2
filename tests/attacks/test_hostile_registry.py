"""A registry, or whoever pushed there, sends what no registry should: each answer ends as one clear line, and writes nothing."""

from __future__ import annotations

import gzip
import io
import json
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import containers.registry.transport
from cli.export import layout
from containers.blob import BlobUnreadable
from containers.errors import SlipwayError
from containers.image.layers import layer
from containers.image.registry_image import fetch
from containers.registry.client import Repository
from containers.registry.credentials import Login
from stacks.config.stack_file import ROOT
from tests.fakes.loopback import serving
from tests.fakes.registry import INDEX, LAYER, MANIFEST, Registry, digest_of, skip_retry_waits
from tests.helpers.refusals import refusal_line
from toolchain.provider.docker_api import registry_digest

ESCAPES = (
    "sha256:../../../../escaped",
    "../../../escaped",
    "sha256:" + "a" * 63 + "/",
    "sha256:/escaped",
    "",
    "sha512:" + "0" * 128,
)
CONTROL = "\x1b]0;title\x07"


def image_of(registry: Registry, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> str:
    """Keep an image of one layer whose manifest and configuration are changed; return its name."""
    reference = registry.image("a/b:1", [b""])
    manifest = json.loads(registry.manifests[reference.partition("@")[2]][1])
    config = json.loads(registry.blobs[manifest["config"]["digest"]])
    size = manifest["config"]["size"]
    change(manifest, config)
    if manifest["config"]["digest"] in registry.blobs:
        body = json.dumps(config).encode()
        sizes = {size: len(body)}  # unless the change is of the size
        stated = manifest["config"]["size"]
        manifest["config"] |= {"digest": registry.blob(body), "size": sizes.get(stated, stated)}
    registry.manifest("a/b:1", MANIFEST, manifest)
    return f"{registry.address}/a/b:1"


@pytest.mark.parametrize(
    "content",
    [
        {"config": 1, "layers": []},
        {"config": {"digest": 5, "size": 1}, "layers": []},
        {"config": {"digest": "sha256:" + "0" * 64, "size": 1}, "layers": 7},
        {"layers": [None]},
        {"mediaType": [INDEX], "manifests": 3},
        {"mediaType": f"{CONTROL}x"},
    ],
)
def test_manifest_of_other_types_is_one_line(registry: Registry, content: dict[str, Any]) -> None:
    registry.manifest("a/b:1", MANIFEST, content)
    assert "\x1b" not in refusal_line(fetch, f"{registry.address}/a/b:1")


@pytest.mark.parametrize("manifests", [3, [1], [None], [{"platform": 1}], [{"platform": {"os": "linux"}, "digest": 1}]])
def test_index_of_other_types_is_one_line(registry: Registry, manifests: Any) -> None:
    registry.manifest("a/b:1", INDEX, {"mediaType": INDEX, "manifests": manifests})
    assert "malformed index" in refusal_line(fetch, f"{registry.address}/a/b:1")


@pytest.mark.parametrize(
    "changes",
    [
        {"history": [1]},
        {"history": 1},
        {"rootfs": []},
        {"rootfs": {"diff_ids": 1}},
        {"os": 5},
        {"config": [1]},
        {"config": "x"},
    ],
)
def test_configuration_of_other_types_is_one_line(registry: Registry, changes: dict[str, Any]) -> None:
    name = image_of(registry, lambda _, config: config.update(changes))
    assert "malformed manifest or configuration" in refusal_line(fetch, name)


@pytest.mark.parametrize("size", [-1, 2**63, "-5"])
@pytest.mark.parametrize("part", ["config", "layer"])
def test_blob_of_a_size_that_none_has_is_refused(registry: Registry, part: str, size: int | str) -> None:
    def change(manifest: dict[str, Any], _: dict[str, Any]) -> None:
        (manifest["config"] if part == "config" else manifest["layers"][0])["size"] = size

    line = refusal_line(fetch, image_of(registry, change))
    assert "malformed manifest or configuration: ValueError" in line
    assert f"size {size!r}, expected a whole number of bytes" in line


def test_json_nested_too_deep_is_one_line(registry: Registry) -> None:
    body = b"[" * 1_000_000
    registry.manifests[digest_of(body)] = (MANIFEST, body)
    registry.digests["a/b:1"] = digest_of(body)
    assert "is not a JSON object" in refusal_line(fetch, f"{registry.address}/a/b:1")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["config", "layers", "digest", "size", "mediaType", "manifests", "platform", "os", "architecture"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_any_manifest_is_an_image_or_one_line(registry: Registry) -> None:
    @given(
        st.dictionaries(st.sampled_from(["config", "layers", "mediaType", "manifests"]), JSON),
        st.sampled_from([MANIFEST, INDEX]),
    )
    def run(content: dict[str, Any], kind: str) -> None:
        registry.manifest("a/b:1", kind, content)
        assert "\n" not in refusal_line(fetch, f"{registry.address}/a/b:1")

    run()


class Hostile(BaseHTTPRequestHandler):
    """Answers each request with `answer`."""

    answer: Callable[[Any], None]
    headers_seen: list[tuple[str, str | None]] = []  # noqa: RUF012 - replaced for each server

    def do_GET(self) -> None:
        type(self).headers_seen.append((self.path, self.headers.get("Authorization")))
        type(self).answer(self)

    do_HEAD = do_GET  # noqa: N815 - likewise

    def reply(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def hostile(answer: Callable[[Any], None]) -> type[Hostile]:
    return type("Handler", (Hostile,), {"answer": answer, "headers_seen": []})


@pytest.mark.parametrize("digest", ESCAPES)
@pytest.mark.parametrize("part", ["layer", "config"])
def test_digest_that_is_a_path_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, digest: str, part: str
) -> None:
    """The registry answers whatever is asked for, so that `slipway export` would write it to the path."""
    skip_retry_waits(monkeypatch)
    config = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [digest_of(b"")]}}).encode()
    genuine = digest_of(config)
    digests = {"layer": genuine, "config": genuine, part: digest}
    manifest = {
        "mediaType": MANIFEST,
        "config": {"digest": digests["config"], "size": len(config)},
        "layers": [{"digest": digests["layer"], "size": 11, "mediaType": f"{LAYER}+gzip"}],
    }

    def answer(request: Any) -> None:
        content = json.dumps(manifest).encode() if "/manifests/" in request.path else b"overwritten"
        content = config if genuine in request.path else content
        request.reply(200, {"Content-Type": MANIFEST, "Content-Length": str(len(content))}, content)

    output = tmp_path / "a/b/out"
    output.mkdir(parents=True)
    with serving(hostile(answer)) as address:
        message = refusal_line(lambda: layout.folder(fetch(f"{address}/a/b:1"), output))
    assert not list(tmp_path.rglob("*escaped*"))
    assert "is no digest of a blob" in message


def test_login_does_not_follow_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    thief = hostile(lambda request: request.reply(404, {"Content-Length": "0"}))
    with serving(thief) as elsewhere:
        other = elsewhere.replace("127.0.0.1", "localhost")

        def answer(request: Any) -> None:
            if request.headers.get("Authorization"):
                request.reply(307, {"Location": f"http://{other}/stolen", "Content-Length": "0"})
            else:
                request.reply(401, {"WWW-Authenticate": 'Basic realm="x"', "Content-Length": "0"})

        with serving(hostile(answer)) as address:
            login = Login(address, "user", "canary")
            refusal_line(Repository(f"{address}/a/b:1", login).manifest)
    assert thief.headers_seen
    assert {authorization for _, authorization in thief.headers_seen} == {None}


def test_login_is_not_for_a_storage_that_asks_for_one() -> None:
    """A registry's storage may be another's, and would name a token server of its own."""

    def ask(request: Any) -> None:
        realm = f'Bearer realm="http://{request.headers["Host"]}/token",service="x"'
        request.reply(401, {"WWW-Authenticate": realm, "Content-Length": "0"})

    storage = hostile(ask)
    with serving(storage) as elsewhere:
        place = {"Location": f"http://{elsewhere}/blob", "Content-Length": "0"}
        with serving(hostile(lambda request: request.reply(307, place))) as address:
            login = Login(address, "user", "canary")
            assert "(401)" in refusal_line(Repository(f"{address}/a/b:1", login).manifest)
    assert storage.headers_seen == [("/blob", None)]


def test_push_that_ends_at_a_page_is_no_push() -> None:
    """A proxy may send whoever it does not know to a page. As browsers do, requests then asks for the page by GET."""

    def lead(request: Any) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        request.reply(302, {"Location": "/login", "Content-Length": "0"})

    page = hostile(lambda request: request.reply(200, {"Content-Length": "0"}))
    proxy = type("Proxy", (page,), {"do_PUT": lead})
    with serving(proxy) as address:
        error = refusal_line(Repository(f"{address}/a/b:1").put, "1", b"{}", MANIFEST)
    assert error.endswith(f"it leads from PUT to a page, http://{address}/login")


def test_login_is_not_sent_to_token_server_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    challenge = 'Bearer realm="http://tokens.example.com/token",service="x"'
    answer = lambda request: request.reply(401, {"WWW-Authenticate": challenge, "Content-Length": "0"})  # noqa: E731
    with serving(hostile(answer)) as address:
        message = refusal_line(Repository(f"{address}/a/b:1", Login(address, "user", "canary")).manifest)
    assert "would get the login without encryption" in message
    assert "canary" not in message


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"token": 1}', b'{"token": "a\\r\\nHost: x"}', b"[" * 100_000, b"\xff"]
)
def test_token_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    skip_retry_waits(monkeypatch)

    def answer(request: Any) -> None:
        if request.path.startswith("/token"):
            request.reply(200, {"Content-Length": str(len(body))}, body)
        else:
            realm = f'Bearer realm="http://{request.headers["Host"]}/token",service="x"'
            request.reply(401, {"WWW-Authenticate": realm, "Content-Length": "0"})

    with serving(hostile(answer)) as address:
        assert "sent no token" in refusal_line(Repository(f"{address}/a/b:1").manifest)


def test_list_of_tags_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    for page in (b'{"tags": []}', b'{"tags": ["a"]}'):
        headers = {"Content-Length": str(len(page)), "Link": '</v2/a/b/tags/list?n=1000&last=a>; rel="next"'}
        with serving(hostile(lambda request, page=page, headers=headers: request.reply(200, headers, page))) as address:  # type: ignore[misc]
            assert set(Repository(f"{address}/a/b:1").tags()) <= {"a"}
    with serving(hostile(lambda request: request.reply(200, {"Content-Length": "13"}, b'{"tags": [1]}'))) as address:
        assert "something else than names" in refusal_line(Repository(f"{address}/a/b:1").tags)


@pytest.mark.parametrize("limit", ["_MOST_TAGS", "_MOST_PAGES"])
def test_list_of_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """A part of a list does not pass for the whole."""
    monkeypatch.setattr(f"containers.registry.client.{limit}", 20)
    numbers = count()

    def answer(request: Any) -> None:
        link = f'</v2/a/b/tags/list?n=1000&last={next(numbers)}>; rel="next"'
        request.reply(200, {"Content-Length": "15", "Link": link}, b'{"tags": ["a"]}')

    with serving(hostile(answer)) as address:
        message = refusal_line(Repository(f"{address}/a/b:1").tags)
    assert message.startswith(f"{address}/a/b:1: the list of tags is too long: {address} lists more than ")
    assert next(numbers) == 21


def test_manifest_byte_by_byte_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    monkeypatch.setattr(containers.registry.transport, "_LONGEST", 0.3)

    def answer(request: Any) -> None:
        request.reply(200, {"Content-Length": "1000000"})
        for _ in range(200):
            try:
                request.wfile.write(b" ")
            except OSError:
                return
            time.sleep(0.02)

    with serving(hostile(answer)) as address:
        assert "sent no whole response in" in refusal_line(Repository(f"{address}/a/b:1").manifest)


def test_manifest_without_end_or_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    bomb = gzip.compress(b" " * (64 << 20))

    def endless(request: Any) -> None:
        request.reply(200, {"Connection": "close"})
        try:
            while True:
                request.wfile.write(bytes(1 << 16))
        except OSError:
            return

    def packed(request: Any) -> None:
        request.reply(200, {"Content-Encoding": "gzip", "Content-Length": str(len(bomb))}, bomb)

    for answer in (endless, packed):
        with serving(hostile(answer)) as address:
            assert "sent more than 4 MiB" in refusal_line(Repository(f"{address}/a/b:1").manifest)


def test_manifest_of_4_mib_is_the_largest() -> None:
    text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    for size in (4 << 20, (4 << 20) + 1):
        body = text.ljust(size)
        reply = partial(Hostile.reply, status=200, headers={"Content-Type": INDEX}, body=body)
        with serving(hostile(reply)) as address:
            repository = Repository(f"{address}/a/b:1")
            if size == 4 << 20:
                assert repository.manifest().body == body
            else:
                assert "sent more than 4 MiB" in refusal_line(repository.manifest)


def header(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


BOMB = """
import io, resource, sys, tarfile
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from containers.blob import BlobUnreadable
from containers.image.layers.layer import index
class Endless(io.RawIOBase):
    def __init__(self, start): self.start = start
    def readable(self): return True
    def readinto(self, buffer):
        block, self.start = self.start[:len(buffer)], self.start[len(buffer):]
        block += bytes(len(buffer) - len(block)) if self.zeros else b""
        buffer[:len(block)] = block
        return len(block)
stream = Endless(sys.stdin.buffer.read()); stream.zeros = True
try:
    index(io.BufferedReader(stream), "x+tar")
except BlobUnreadable as error:
    print(error)
"""


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_header_of_gigabytes_takes_no_memory(kind: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB], input=header(kind, 8 << 30), capture_output=True, cwd=ROOT, check=False
    )
    assert b"malformed layer archive: an extended header of 8589934592 bytes" in done.stdout, done.stderr[-500:]


def test_sparse_file_with_endless_map_is_refused() -> None:
    block = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    with pytest.raises(BlobUnreadable, match="a sparse file"):
        layer.index(io.BytesIO(bytes(block) * 3), "x+tar")


@given(st.binary(max_size=3000), st.sampled_from(["tar", "tar+gzip", "tar+zstd"]))
def test_any_bytes_are_a_layer_or_unreadable(content: bytes, suffix: str) -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB
    try:
        layer.index(io.BytesIO(content), f"{LAYER}{suffix.removeprefix('tar')}")
    except (BlobUnreadable, SlipwayError):
        return


@pytest.mark.parametrize("read", ["manifest", "digest", "visible_digest", "tag"])
def test_other_manifest_for_a_digest_is_refused(registry: Registry, read: str) -> None:
    """The answer fits its own header: it is whole, and not what the digest names."""
    requested = registry.image("a/b:1", [b"good"]).partition("@")[2]
    other = registry.image("a/b:2", [b"evil"]).partition("@")[2]
    registry.swapped[requested] = other
    repository = Repository(f"{registry.address}/a/b@{requested}")
    line = refusal_line(lambda: repository.tag("3") if read == "tag" else getattr(repository, read)())
    assert other in line
    assert requested in line
    assert "a/b:3" not in registry.digests


def test_lookup_of_a_digest_takes_no_other(registry: Registry) -> None:
    requested = registry.image("a/b:1", [b"good"]).partition("@")[2]
    registry.swapped[requested] = registry.image("a/b:2", [b"evil"]).partition("@")[2]
    registries = [{"address": f"http://{registry.address}", "authDisabled": True}]
    with pytest.raises(SlipwayError, match="another manifest"):
        registry_digest.digest(f"{registry.address}/a/b@{requested}", registries, verify=True)


class Upload(BaseHTTPRequestHandler):
    """A registry that says of a blob that it has another size, and takes uploads at ``place``."""

    place = "/v2/a/b/blobs/uploads/1"
    bodies: ClassVar[list[bytes]] = []

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "PUT":
            self.bodies.append(body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def do_HEAD(self) -> None:
        self._answer(200, {"Content-Length": "7"})

    def do_POST(self) -> None:
        self._answer(202, {"Location": self.place, "Content-Length": "0"})

    def do_PUT(self) -> None:
        self._answer(201, {"Content-Length": "0"})


@pytest.mark.parametrize("place", [Upload.place, "http://[::", "//[x]/", "http://169.254.169.254/"])
def test_blob_of_another_size_is_pushed_to_its_registry_alone(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    skip_retry_waits(monkeypatch)
    handler: type[Upload] = type("Handler", (Upload,), {"place": place, "bodies": []})
    blob = b"a layer"[:5]
    with serving(handler) as address:
        repository = Repository(f"{address}/a/b:1")
        push = partial(repository.push_blob, digest_of(blob), len(blob), io.BytesIO(blob))
        if place == Upload.place:
            push()
        else:
            assert f"{address}/a/b:1: request to {address} failed" in refusal_line(push)
    assert handler.bodies == [blob] * (place == Upload.place)
