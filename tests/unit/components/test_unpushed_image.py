"""The gate of an image that is not pushed: read as an engine saves it, by a stand-in of the docker client."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from components.runners.kubernetes.certificates import make
from components.supply_chain.gates.unpushed_image import InspectUnpushed
from containers.engine import engine_image
from containers.engine.engine_access import Access
from containers.evidence.vulnerabilities import grype
from containers.image.binaries import contents
from stacks.config.stack_file import ROOT
from tests.fakes import tls_engine, vulnerability_scanner
from tests.fakes.tls_engine import TlsEngine
from tests.fakes.vulnerability_scanner import Scanner
from tests.helpers.elf_writer import LOADER, elf, fatbin, loader
from tests.helpers.layers import files_archive, members_archive
from tests.helpers.local_images import LAYERS, pack_folder, write_docker, write_layout
from tests.helpers.refusals import refusal, refusal_line

NAME = "r.example/x/torch:abc1234-base"
PROGRAM = elf(needed=["libgone.so.1"], interpreter=LOADER)
CLIENT = """#!/bin/sh
echo "$PWD $*" >> {folder}/calls
{prints}
"""


class Client:
    """The folder of a docker client that prints an archive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "saved.tar"
        self.print(f"exec cat {self.archive}")

    def print(self, commands: str) -> None:
        """Let the client run these commands."""
        (self.folder / "docker").write_text(CLIENT.format(folder=self.folder, prints=commands))
        (self.folder / "docker").chmod(0o755)

    def hold(self, files: Mapping[str, bytes]) -> str:
        """Let the engine hold an image with these files and glibc's loader; return its id."""
        content = files_archive({LOADER.lstrip("/"): loader(), **files})
        folder = write_layout(self.folder / f"layout{len(files)}", [(content, "tar", bytes)])
        pack_folder(folder, self.archive)
        return identity(folder)

    @property
    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


def identity(layout: Path) -> str:
    """Return the id that an engine gives a layout's image: the digest of its configuration."""
    manifest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    content = json.loads((layout / f"blobs/{manifest.replace(':', '/')}").read_text())
    return str(content["config"]["digest"])


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return Client(tmp_path)


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
    image, layers = engine_image.read(NAME, save(client), Access(), "linux/amd64", contents.facts)
    expected = {"bin/p", "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64/libb.so", "usr/lib64/libc.so.1"}
    assert {*contents.of(layers, image.config).binaries} == expected
    assert (image.platform, len(layers)) == ("linux/amd64", len(image.layers))


def test_unpushed_image_that_loads_passes_the_gate(client: Client) -> None:
    ref = client.hold({"opt/b": elf(interpreter=LOADER)})
    created = InspectUnpushed().create(inputs(ref))
    assert (created.id, created.outs) == (ref, {"ref": ref})
    assert client.calls == [f"{ROOT} save {NAME}"]


def test_unpushed_image_without_a_library_ends_the_update(client: Client) -> None:
    ref = client.hold({"opt/a": PROGRAM, "opt/b": PROGRAM, "opt/_C.so": elf("_C.so", gpu=fatbin((2, 80, 0)))})
    given = inputs(ref, compiled={"/opt/_C.so": "9.0"})
    assert refusal(InspectUnpushed().create, given).split("\n") == [
        f"{NAME}: ends the update because of 3 faults; mend the image, or list it in slipway:inspection.exceptions:",
        "  /opt/a: misses libgone.so.1: not in the image",
        "  /opt/b: misses libgone.so.1: not in the image",
        "  /opt/_C.so: misses code for 9.0: it has sm_80; /opt/_C.so is compiled for 9.0",
    ]
    excepted = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    other = {"files": "/opt/_C.so", "missing": "9.0", "reason": "it runs on A100 alone"}
    InspectUnpushed().create({**given, "exceptions": [excepted, other]})


VULNERABLE = (
    f"{NAME}: ends the update because of a vulnerability, by the database of 2026-11-24; mend the image (`slipway lock "
    "--refresh` upgrades its packages), or list it in slipway:vulnerabilities.exceptions:\n"
    "  CVE-2026-0001 (critical): apt 2.6.2, mended in 99"
)


def test_unpushed_image_with_a_vulnerability_ends_the_update(client: Client, scanner: Scanner) -> None:
    ref = client.hold({})
    given = inputs(ref, vulnerabilities={"database": str(scanner.archive)})
    assert refusal(InspectUnpushed().create, given) == VULNERABLE
    row = {"id": "CVE-2026-0001", "reason": "apt is not run", "until": "9999-12-31"}
    policy = {"database": str(scanner.archive), "exceptions": [row]}
    assert InspectUnpushed().create(inputs(ref, vulnerabilities=policy)).outs == {"ref": ref}


@pytest.mark.parametrize("inspected", [True, False])
def test_scanned_archive_is_what_the_engine_saved(client: Client, scanner: Scanner, *, inspected: bool) -> None:
    given = inputs(client.hold({}), vulnerabilities={"severity": "high", "database": str(scanner.archive)})
    given |= {} if inspected else {"exceptions": None}
    client.print(f"cat {client.archive}; head -c 3000000 /dev/zero")  # padding behind the archive's end
    assert "apt" in refusal(InspectUnpushed().create, given)
    saved = client.archive.read_bytes() + bytes(3_000_000)
    scanned = scanner.scanned()
    assert scanned["sha256"] == hashlib.sha256(saved).hexdigest()
    assert client.calls == [f"{ROOT} save {NAME}"]
    temporary = client.folder / "temporary"
    assert Path(scanned["temporary"]).parent == temporary
    assert scanned["beside"] == Path(scanned["temporary"]).name  # an update that is killed leaves no archive
    assert list(temporary.iterdir()) == []


def test_image_that_does_not_load_is_not_scanned(client: Client, scanner: Scanner) -> None:
    given = inputs(client.hold({"opt/a": PROGRAM}), vulnerabilities={"database": str(scanner.archive)})
    assert "/opt/a: misses libgone.so.1" in refusal(InspectUnpushed().create, given)
    InspectUnpushed().create(given | {"exceptions": None, "vulnerabilities": None})
    assert not (scanner.folder / "calls").exists()


def test_other_image_under_the_name_is_not_scanned(client: Client, scanner: Scanner) -> None:
    client.hold({})
    given = inputs(f"sha256:{'b' * 64}", exceptions=None, vulnerabilities={"database": str(scanner.archive)})
    assert "holds another image by this name" in refusal_line(InspectUnpushed().create, given)
    assert not (scanner.folder / "calls").exists()


def test_copy_without_room_names_tmpdir(client: Client) -> None:
    ref = client.hold({})
    line = refusal_line(engine_image.read, NAME, ref, Access(), "linux/amd64", contents.facts, Path("/dev/full"))
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
    InspectUnpushed().create(inputs(ref, engine="unix://.slipway/engines/t-amd64.sock"))
    assert client.calls == [f"{ROOT} --host unix://.slipway/engines/t-amd64.sock save {NAME}"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[TlsEngine]:
    with tls_engine.serve(tmp_path) as engine:
        yield engine


def over_tls(engine: TlsEngine, ref: str, **tls: str) -> dict[str, Any]:
    return inputs(ref, engine=f"tcp://{engine.address}", tls={**engine.tls, **tls})


def test_image_behind_tls_is_read_by_its_api(client: Client, engine: TlsEngine) -> None:
    """As that of a cluster's build service; the machine needs no docker client."""
    ref = client.hold({"opt/a": PROGRAM})
    engine.body = client.archive.read_bytes()
    assert "/opt/a: misses libgone.so.1" in refusal(InspectUnpushed().create, over_tls(engine, ref))
    assert (engine.requests, client.calls) == ([f"/images/get?{urlencode({'names': NAME})}"], [])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 404, "body": b'{"message": "No such image: x"}'}, "No such image: x"),
        ({"status": 500, "body": b"no\njson"}, "no\\njson"),
        ({"status": 500}, "status 500"),
        ({"cut": True}, "the connection ended in the middle"),
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
    """As that of a builder on EC2; `docker` of that machine saves it."""
    ref = client.hold({})
    (client.folder / "docker").rename(client.folder / "ssh")
    InspectUnpushed().create(inputs(ref, engine="ssh://slipway-builder", ssh=["-F", "c", "-o", "ConnectTimeout=9"]))
    assert client.calls == [f"{ROOT} -F c -o ConnectTimeout=9 slipway-builder docker save {NAME}"]


def test_other_image_under_the_name_is_refused(client: Client) -> None:
    client.hold({})
    assert refusal_line(InspectUnpushed().create, inputs(f"sha256:{'b' * 64}")) == (
        f"{NAME}: the Docker engine holds another image by this name than sha256:{'b' * 64}, which the update built: "
        "run the update again, and not beside another one of the same image"
    )


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("echo 'Error response from daemon: No such image' >&2; exit 1", "Error response from daemon: No such image"),
        ("head -c 2000 {archive}; echo 'unexpected EOF' >&2; exit 1", "unexpected EOF"),
        ("exit 7", "status 7"),
    ],
)
def test_engine_that_does_not_save_is_one_line(client: Client, commands: str, reason: str) -> None:
    ref = client.hold({"opt/a": PROGRAM})
    client.print(commands.format(archive=client.archive))
    line = refusal_line(InspectUnpushed().create, inputs(ref, engine="ssh://b"))
    assert line == f"{NAME}: the Docker engine at ssh://b: `docker save` failed: {reason}"


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
    client.archive.write_bytes(content)
    assert error in refusal_line(InspectUnpushed().create, inputs(f"sha256:{'b' * 64}"))


def test_engine_that_still_saves_a_malformed_layer_is_left(client: Client) -> None:
    folder = write_layout(client.folder / "layout", [(b"\x1f\x8b" + bytes(2000), "tar", bytes)])
    pack_folder(folder, client.archive)
    client.print(f"cat {client.archive} && exec cat /dev/zero")
    assert "malformed layer archive" in refusal_line(InspectUnpushed().create, inputs(identity(folder)))
