"""Whoever runs in a job's pod, as the script or beside it, chooses what it leaves: an archive, and what it claims."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.warm import warm_layer
from cli.warm.warm_pod import PodCaches
from cli.warm.warm_run import WarmScript
from containers.errors import SlipwayError

IMAGE = f"r.example/torch@sha256:{'1' * 64}"
SCRIPT = WarmScript(Path("warm/steps.py"), b"compile()\n")
LIMIT = 1 << 20
RECORD: Mapping[str, Any] = {
    "image": IMAGE.partition("@")[2],
    "sha256": hashlib.sha256(SCRIPT.content).hexdigest(),
    "torch": "2.14.1",
    "triton": "3.8.0",
    "machine": ["gpu NVIDIA H100 80GB HBM3", "driver 580", "processor x86_64 avx2"],
    "uid": 1000,
    "gid": 100,
    "modules": "/opt/venv/lib/python3.12/site-packages",
    "host": "slipway-runners-x7-workflow",
}


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"cubin", mode: int = 0o644) -> bytes:
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.linkname = kind, mode, "/etc/passwd" if kind != tarfile.REGTYPE else ""
    header.size = len(content) if kind == tarfile.REGTYPE else 0
    return header.tobuf(tarfile.PAX_FORMAT) + content[: header.size].ljust(-(-header.size // 512) * 512, b"\0")


def sized(size: int) -> bytes:
    """Return a header that states a size."""
    header = tarfile.TarInfo("triton/x")
    header.pax_headers = {"size": str(size)}
    return header.tobuf(tarfile.PAX_FORMAT)


def left(folder: Path, *members: bytes, **claims: object) -> PodCaches:
    """Return what a job with these claims and files left."""
    (folder / "record.json").write_text(json.dumps({**RECORD, **claims}))
    (folder / "caches.tar").write_bytes(b"".join(members) + bytes(1024))
    return PodCaches(folder)


def layer(caches: PodCaches) -> bytes:
    """Return the archive of the layer that becomes of it."""
    machine = caches.machine(IMAGE, SCRIPT)
    contents, target = io.BytesIO(), io.BytesIO()
    files, _ = caches.read(read=lambda stream: warm_layer.read(stream, contents, LIMIT))
    warm_layer.write(files, contents, target, "key", machine.lines, machine.owner)
    return target.getvalue()


def test_caches_of_an_honest_job_become_a_layer(tmp_path: Path) -> None:
    files = [member("triton/b/k.so", mode=0o6755), member("inductor/a", mode=0o1666)]
    written = layer(left(tmp_path, *files))
    with tarfile.open(fileobj=io.BytesIO(written)) as archive:
        members = {each.name: each for each in archive}
    assert {each.type for each in members.values()} == {tarfile.REGTYPE, tarfile.DIRTYPE}
    caches = {name.removeprefix("opt/slipway/warm/key/"): each for name, each in members.items()}
    program, data = caches["triton/b/k.so"], caches["inductor/a"]
    assert (program.mode, data.mode) == (0o755, 0o644), "neither setuid nor sticky"
    assert (program.uid, program.gid) == (1000, 100)
    assert layer(left(tmp_path, *reversed(files))) == written, "in one order"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([member("triton/x", tarfile.SYMTYPE)], "'triton/x' is no regular file"),
        ([member("triton/x", tarfile.LNKTYPE)], "'triton/x' is no regular file"),
        ([member("triton/x", tarfile.CHRTYPE)], "'triton/x' is no regular file"),
        ([member("triton/x", tarfile.FIFOTYPE)], "'triton/x' is no regular file"),
        ([member("triton", tarfile.DIRTYPE)], "'triton' is no regular file"),
        ([member("triton/../../etc/passwd")], "is in no cache"),
        ([member("../0123456789abcdef/triton/x")], "is in no cache"),
        ([member("opt/slipway/warm/0123456789abcdef/triton/x")], "is in no cache"),
        ([member("fits")], "'fits' is in no cache"),
        ([member("triton/.wh.x")], "by which a layer removes files"),
        ([member("triton/x"), member("triton/x")], "'triton/x' is there twice"),
        ([member("triton/x"), member("triton/x/y")], "as a file and as a folder"),
        ([member("triton/x", content=bytes(LIMIT)), member("triton/y")], "more than 1,048,576 bytes"),
        ([member("triton/x", content=bytes(4096))[:2048]], r"^caches.tar of the job with the GPUs: malformed"),
        ([sized(-5), member("triton/y")], r"^caches.tar of the job with the GPUs: malformed .*: a file of -5 bytes"),
        ([member("triton/" + "x/" * 2000 + "x")], "has a name that is too long"),
        ([member(f"triton/{number}/{'x/' * 1900}x") for number in range(60)], "100,000 files or folders"),
        ([b"x" * 2048], r"^caches.tar of the job with the GPUs: malformed"),
    ],
)  # fmt: skip
def test_archive_of_anything_but_caches_is_refused(tmp_path: Path, members: list[bytes], reason: str) -> None:
    with pytest.raises(SlipwayError, match=reason) as caught:
        layer(left(tmp_path, *members))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_archive_of_100001_files_is_refused(tmp_path: Path) -> None:
    """They are made here: a case's parameters are made wherever tests are collected, in each worker."""
    with pytest.raises(SlipwayError, match="100,000 files"):
        layer(left(tmp_path, *(member(f"triton/{number}", content=b"") for number in range(100_001))))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"image": f"sha256:{'2' * 64}"}, f"image is sha256:2+, and sha256:{'1' * 64} is to be warmed"),
        ({"image": ["sha256"]}, "image is .'sha256'., and sha256:1"),
        ({"sha256": "0" * 64}, "sha256 is 0+, and [0-9a-f]{64} is to be warmed: start `warm` anew"),
        ({"machine": ["processor x86_64 avx2"]}, "it had no GPU"),
        ({"machine": []}, "no description of a machine"),
        ({"machine": ["gpu H100\ndriver 1", "processor x86_64"]}, "no description of a machine"),
        ({"machine": ["rm -rf", "gpu H100", "processor x86_64"]}, "no description of a machine"),
        ({"machine": ["gpu H100"] * 1000 + ["processor x86_64"]}, "no description of a machine"),
        ({"machine": ["gpu " + "x" * 10_000, "processor x86_64"]}, "no description of a machine"),
        ({"torch": "2.14\x1b[2J"}, "no description of a machine"),
        ({"modules": "/etc"}, "no description of a machine"),
        ({"modules": "/usr/lib/../../etc/site-packages"}, "no description of a machine"),
        ({"modules": "lib/site-packages"}, "no description of a machine"),
        ({"modules": "/.wh.lib/site-packages"}, "no description of a machine"),
        ({"modules": "/opt/slipway/warm/key/triton/site-packages"}, "no description of a machine"),
        ({"uid": -1}, "no description of a machine"),
        ({"gid": 1 << 32}, "no description of a machine"),
        ({"uid": "root"}, "no description of a machine"),
    ],
)
def test_claim_of_something_else_is_refused(tmp_path: Path, claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(SlipwayError, match=rf"^record.json of the job with the GPUs: .*{reason}") as caught:
        layer(left(tmp_path, member("triton/x"), **claims))
    assert str(caught.value).isprintable()


def linked(file: Path) -> None:
    file.symlink_to("/etc/passwd")


def piped(file: Path) -> None:
    os.mkfifo(file)


def in_folder(file: Path) -> None:
    file.mkdir()


def huge(file: Path) -> None:
    file.write_bytes(b'{"a": "' + b"x" * (1 << 19) + b'"}')


def nested(file: Path) -> None:
    file.write_text("[" * 100_000)


def no_mapping(file: Path) -> None:
    file.write_text("[1]")


@pytest.mark.parametrize("plant", [Path.unlink, linked, piped, in_folder, huge, nested, no_mapping])
@pytest.mark.parametrize("name", ["record.json", "caches.tar"])
def test_anything_in_place_of_a_file_is_one_line(tmp_path: Path, name: str, plant: Callable[[Path], None]) -> None:
    caches = left(tmp_path, member("triton/x"))
    if plant is not Path.unlink:
        (tmp_path / name).unlink()
    plant(tmp_path / name)
    with pytest.raises(SlipwayError, match=f"^{name} of the job with the GPUs: ") as caught:
        layer(caches)
    assert str(caught.value).isprintable()


def test_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    left(tmp_path / "left", member("triton/x"))
    (tmp_path / "link").symlink_to("left")
    with pytest.raises(SlipwayError, match="Not a directory"):
        layer(PodCaches(tmp_path / "link"))
