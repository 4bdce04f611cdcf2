"""The gate of an image that is not pushed: read as a stand-in of an engine saves it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from components.runners.kubernetes.certificates import make
from components.supply_chain.gates import saved_image
from components.supply_chain.gates.unpushed_image import InspectUnpushed
from containers.engine import engine_image
from containers.engine.connection import Address
from containers.evidence.vulnerabilities import grype
from containers.image.binaries import contents
from stacks.config.stack_file import ROOT
from tests.fakes import tls_engine, vulnerability_scanner
from tests.fakes.tls_engine import TlsEngine
from tests.fakes.vulnerability_scanner import Scanner
from tests.helpers.elf_writer import LOADER, elf, fatbin, loader
from tests.helpers.layers import files_archive, members_archive
from tests.helpers.local_images import LAYERS, pack_folder, write_docker, write_layout
from tests.helpers.read_here import read_here
from tests.helpers.refusals import refusal, refusal_line

NAME = "r.example/x/torch:abc1234-base"
PROGRAM = elf(needed=["libgone.so.1"], interpreter=LOADER)
SSH = """#!{python}
import os, socket, sys, threading
open("{folder}/arguments", "a").write(" ".join(sys.argv[1:]) + "\\n")
engine = socket.socket(socket.AF_UNIX)
engine.connect("{folder}/engine.sock")
def send():
    while block := os.read(0, 65536):
        engine.sendall(block)
threading.Thread(target=send, daemon=True).start()
while block := engine.recv(65536):
    os.write(1, block)
"""
SAVED = f"/images/get?{urlencode({'names': NAME})}"


class Client:
    """A folder with an archive, and the engine of the environment, which saves it."""

    def __init__(self, folder: Path, engine: TlsEngine) -> None:
        self.folder = folder
        self.archive = folder / "saved.tar"
        self.engine = engine

    def hold(self, files: Mapping[str, bytes]) -> str:
        """Let the engine hold an image with these files and glibc's loader; return its id."""
        content = files_archive({LOADER.lstrip("/"): loader(), **files})
        folder = write_layout(self.folder / f"layout{len(files)}", [(content, "tar", bytes)])
        pack_folder(folder, self.archive)
        self.engine.body = self.archive.read_bytes()
        return identity(folder)

    @property
    def calls(self) -> list[str]:
        return self.engine.requests


def identity(layout: Path) -> str:
    """Return the id that an engine gives a layout's image: the digest of its configuration."""
    manifest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    content = json.loads((layout / f"blobs/{manifest.replace(':', '/')}").read_text())
    return str(content["config"]["digest"])


@pytest.fixture(autouse=True)
def _read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read images in this process. `tests/programs` shows that another one may."""
    read_here(saved_image, monkeypatch)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    monkeypatch.delenv("DOCKER_CERT_PATH", raising=False)
    with tls_engine.on_socket(tmp_path / "engine.sock") as engine:
        yield Client(tmp_path, engine)


def inputs(ref: str, *exceptions: Mapping[str, str], **values: Any) -> dict[str, Any]:
    given = {"name": NAME, "platform": "linux/amd64", "engine": "", "compiled": {}, "exceptions": [*exceptions]}
    return {"ref": ref, **given, **values}


@pytest.fixture
def scanner(client: Client, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    """A stand-in of Grype beside the docker client, and an empty folder for temporary files."""
    monkeypatch.setattr(grype, "_CACHE", client.folder / "cache")
    monkeypatch.setattr(tempfile, "tempdir", str(client.folder / "temporary"))
    (client.folder / "temporary").mkdir()
    return vulnerability_scanner.install(client.folder, monkeypatch)


def of_layout(client: Client) -> str:
    """As moby 25 and later, which names each blob by its digest."""
    folder = write_layout(client.folder / "layout", LAYERS)
    pack_folder(folder, client.archive)
    return identity(folder)


def of_containerd(client: Client) -> str:
    """As moby with containerd's images, whose id is the digest of what the name is for."""
    of_layout(client)
    index = json.loads((client.folder / "layout/index.json").read_text())
    return str(index["manifests"][0]["digest"])


def of_folders(client: Client) -> str:
    """As moby before 25: a layer in a folder, and a link to it for the same layer once more."""
    write_docker(client.archive)
    with tarfile.open(client.archive) as archive:
        config = archive.extractfile("config.json")
        assert config
        return f"sha256:{hashlib.sha256(config.read()).hexdigest()}"


@pytest.mark.parametrize("save", [of_layout, of_containerd, of_folders])
def test_saved_image_of_each_form_is_read(client: Client, save: Callable[[Client], str]) -> None:
    identity = save(client)
    client.engine.body = client.archive.read_bytes()
    image, layers = engine_image.read(NAME, identity, Address(), "linux/amd64", contents.facts)
    expected = {"bin/p", "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64/libb.so", "usr/lib64/libc.so.1"}
    assert {*contents.of(layers, image.config).binaries} == expected
    assert (image.platform, len(layers)) == ("linux/amd64", len(image.layers))


def test_unpushed_image_that_loads_passes_the_gate(client: Client) -> None:
    ref = client.hold({"opt/b": elf(interpreter=LOADER)})
    created = InspectUnpushed().create(inputs(ref))
    assert (created.id, created.outs) == (ref, {"ref": ref})
    assert client.calls == [SAVED]


def test_unpushed_image_without_a_library_ends_the_update(client: Client) -> None:
    ref = client.hold({"opt/a": PROGRAM, "opt/b": PROGRAM, "opt/_C.so": elf("_C.so", gpu=fatbin((2, 80, 0)))})
    given = inputs(ref, compiled={"/opt/_C.so": "9.0"})
    assert refusal(InspectUnpushed().create, given).split("\n") == [
        f"{NAME}: ends the update because of 3 faults; fix the image, or list it in slipway:inspection.exceptions:",
        "  /opt/a: missing libgone.so.1: not in the image",
        "  /opt/b: missing libgone.so.1: not in the image",
        "  /opt/_C.so: missing code for 9.0: it has sm_80; /opt/_C.so is compiled for 9.0",
    ]
    excepted = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    other = {"files": "/opt/_C.so", "missing": "9.0", "reason": "it runs on A100 alone"}
    InspectUnpushed().create({**given, "exceptions": [excepted, other]})


VULNERABLE = (
    f"{NAME}: ends the update because of a vulnerability, by the database of 2026-11-24; fix the image (`slipway lock "
    "--refresh` upgrades its packages), or list it in slipway:vulnerabilities.exceptions:\n"
    "  CVE-2026-0001 (critical): apt 2.6.2, fixed in 99"
)


def test_unpushed_image_with_a_vulnerability_ends_the_update(client: Client, scanner: Scanner) -> None:
    ref = client.hold({})
    given = inputs(ref, vulnerabilities={"database": str(scanner.archive)})
    assert refusal(InspectUnpushed().create, given) == VULNERABLE
    row = {"id": "CVE-2026-0001", "reason": "apt is not run", "until": "9999-12-31"}
    policy = {"database": str(scanner.archive), "exceptions": [row]}
    assert InspectUnpushed().create(inputs(ref, vulnerabilities=policy)).outs == {"ref": ref}


def test_image_that_does_not_load_is_not_scanned(client: Client, scanner: Scanner) -> None:
    given = inputs(client.hold({"opt/a": PROGRAM}), vulnerabilities={"database": str(scanner.archive)})
    assert "/opt/a: missing libgone.so.1" in refusal(InspectUnpushed().create, given)
    InspectUnpushed().create(given | {"exceptions": None, "vulnerabilities": None})
    assert not (scanner.folder / "calls").exists()


def test_other_image_under_the_name_is_not_scanned(client: Client, scanner: Scanner) -> None:
    client.hold({})
    given = inputs(f"sha256:{'b' * 64}", exceptions=None, vulnerabilities={"database": str(scanner.archive)})
    assert "holds another image by this name" in refusal_line(InspectUnpushed().create, given)
    assert not (scanner.folder / "calls").exists()


def test_copy_without_room_names_tmpdir(client: Client) -> None:
    ref = client.hold({})
    line = refusal_line(engine_image.read, NAME, ref, Address(), "linux/amd64", contents.facts, Path("/dev/full"))
    reason = (
        "its copy in /dev cannot be written: No space left on device; let TMPDIR name a folder with more free space"
    )
    assert line == f"{NAME}: {reason}"


def test_archive_without_room_names_tmpdir(client: Client, scanner: Scanner) -> None:
    given = inputs(client.hold({}), vulnerabilities={"database": str(scanner.archive)})
    files = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, files[1]))
    try:
        line = refusal_line(InspectUnpushed().create, given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, files)
    assert line.startswith(f"{NAME}: its copy in {client.folder / 'temporary'} cannot be written: File too large; ")


def test_image_that_was_pushed_before_is_not_read(client: Client) -> None:
    ref = f"r.example/x/torch@sha256:{'a' * 64}"
    assert InspectUnpushed().create(inputs(ref, vulnerabilities={})).outs == {"ref": ref}
    assert client.calls == []


def test_unchanged_image_is_not_read_again(client: Client) -> None:
    ref = client.hold({})
    state = InspectUnpushed().create(inputs(ref)).outs
    assert state
    row = {"files": "/opt/a", "missing": "*", "reason": "x"}
    assert not InspectUnpushed().diff("", state, inputs(ref, row, engine="unix://elsewhere")).changes
    assert InspectUnpushed().diff("", state, inputs(f"sha256:{'b' * 64}")).changes


def test_image_of_named_engine_is_read_there(client: Client) -> None:
    ref = client.hold({})
    host = f"unix://.slipway/engines/test-{os.getpid()}.sock"
    path = ROOT / host.removeprefix("unix://")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tls_engine.on_socket(path) as named:
        named.body = client.engine.body
        InspectUnpushed().create(inputs(ref, engine=host))
    assert (named.requests, client.calls) == ([SAVED], [])


def test_engine_on_a_long_path_is_reached(client: Client) -> None:
    """A socket's address has at most 107 bytes."""
    folder = client.folder / ("long" * 30)
    folder.mkdir()
    ref = client.hold({})
    with tls_engine.on_socket(folder / "engine.sock") as engine:
        engine.body = client.engine.body
        InspectUnpushed().create(inputs(ref, engine=f"unix://{folder}/engine.sock"))
    assert engine.requests == [SAVED]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[TlsEngine]:
    with tls_engine.serve(tmp_path) as engine:
        yield engine


def over_tls(engine: TlsEngine, ref: str, **tls: str) -> dict[str, Any]:
    return inputs(ref, engine=f"tcp://{engine.address}", tls={**engine.tls, **tls})


def test_image_behind_tls_is_read_by_its_api(client: Client, engine: TlsEngine) -> None:
    """As that of a cluster's build service."""
    ref = client.hold({"opt/a": PROGRAM})
    engine.body = client.archive.read_bytes()
    assert "/opt/a: missing libgone.so.1" in refusal(InspectUnpushed().create, over_tls(engine, ref))
    assert (engine.requests, client.calls) == ([SAVED], [])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 404, "body": b'{"message": "No such image: x"}'}, "No such image: x"),
        ({"status": 500, "body": b"no\njson"}, "no json"),
        ({"status": 500}, "HTTP 500"),
        ({"cut": True}, "the connection to the Docker daemon broke: IncompleteRead"),
    ],
)
def test_api_that_does_not_save_is_one_line(
    client: Client, engine: TlsEngine, answer: dict[str, Any], reason: str
) -> None:
    ref = client.hold({})
    engine.body = client.archive.read_bytes()
    vars(engine).update(answer if "cut" in answer else {"body": b"", **answer})
    line = refusal_line(InspectUnpushed().create, over_tls(engine, ref))
    assert line.startswith(f"{NAME}: the Docker engine at tcp://{engine.address}: `docker save` failed: {reason}")


def test_engine_of_another_authority_gets_no_request(client: Client, engine: TlsEngine) -> None:
    ref = client.hold({})
    line = refusal_line(InspectUnpushed().create, over_tls(engine, ref, ca=make(["127.0.0.1"])["ca"]))
    assert "certificate verify failed" in line
    assert engine.tls["key"] not in line
    assert engine.requests == []


def test_image_of_builder_is_read_by_its_ssh(client: Client) -> None:
    """As that of a builder on EC2, whose engine is at the other end."""
    ref = client.hold({})
    (client.folder / "ssh").write_text(SSH.format(python=sys.executable, folder=client.folder))
    (client.folder / "ssh").chmod(0o755)
    InspectUnpushed().create(inputs(ref, engine="ssh://slipway-builder", ssh=["-F", "c", "-o", "ConnectTimeout=9"]))
    arguments = (client.folder / "arguments").read_text().splitlines()
    assert arguments == ["-F c -o ConnectTimeout=9 -T -- slipway-builder docker system dial-stdio"]
    assert client.calls == [SAVED]


def test_other_image_under_the_name_is_refused(client: Client) -> None:
    client.hold({})
    assert refusal_line(InspectUnpushed().create, inputs(f"sha256:{'b' * 64}")) == (
        f"{NAME}: the Docker engine holds another image by this name than sha256:{'b' * 64}, which the update built: "
        "run the update again, and not beside another one of the same image"
    )


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey)."),
        ("exit 7", "ssh ended with status 7"),
    ],
)
def test_ssh_that_fails_is_one_line(client: Client, commands: str, reason: str) -> None:
    ref = client.hold({"opt/a": PROGRAM})
    (client.folder / "ssh").write_text(f"#!/bin/sh\n{commands}\n")
    (client.folder / "ssh").chmod(0o755)
    line = refusal_line(InspectUnpushed().create, inputs(ref, engine="ssh://b"))
    assert line == f"{NAME}: the Docker engine at ssh://b: `docker save` failed: ssh://b: {reason}"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\x1f\x8b" + bytes(2000), "malformed layer archive"),
        (b"no archive" * 300, "malformed layer archive"),
        (b"{" * 3000, "no layer blobs/sha256/"),
        (gzip.compress(members_archive(("opt/a", PROGRAM)))[:-9], "malformed layer archive"),
    ],
)
def test_malformed_layer_of_an_engine_is_one_line(client: Client, content: bytes, error: str) -> None:
    folder = write_layout(client.folder / "layout", [(content, "tar", bytes)])
    pack_folder(folder, client.archive)
    client.engine.body = client.archive.read_bytes()
    assert error in refusal_line(InspectUnpushed().create, inputs(identity(folder)))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"no archive" * 100, "no archive of `docker save`: malformed layer archive"),
        (b"", "empty file"),
        (members_archive(("x", b"{}")), "without index.json and manifest.json"),
        (members_archive(("manifest.json", b"[]")), "an archive of 0 images, expected one: none"),
        (members_archive(("manifest.json", b"{")), "manifest.json is not JSON"),
        (members_archive((f"blobs/sha256/{'a' * 64}", b"{}")), "a blob is corrupt"),
    ],
)
def test_what_is_no_archive_of_an_engine_is_one_line(client: Client, content: bytes, error: str) -> None:
    client.engine.body = content
    assert error in refusal_line(InspectUnpushed().create, inputs(f"sha256:{'b' * 64}"))


def test_engine_that_still_saves_a_malformed_layer_is_left(client: Client) -> None:
    folder = write_layout(client.folder / "layout", [(b"\x1f\x8b" + bytes(2000), "tar", bytes)])
    pack_folder(folder, client.archive)
    client.engine.body, client.engine.endless = client.archive.read_bytes(), True
    assert "malformed layer archive" in refusal_line(InspectUnpushed().create, inputs(identity(folder)))
