"""Images in layouts and archives, and what `slipway inspect` makes of them, whole and broken."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from cli.export import selection
from cli.main import main
from containers import budget
from containers.errors import SlipwayError
from containers.image.binaries import contents
from containers.image.local_image import open_image
from containers.image.registry_image import Image
from stacks import flavors, plan
from tests.helpers.elf_writer import elf, fatbin
from tests.helpers.every import every
from tests.helpers.layers import Member, members_archive
from tests.helpers.local_images import LAYERS, LOWER, pack_folder, write_docker, write_layout


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return write_layout(tmp_path / "layout", LAYERS)


def binaries(image: Image) -> set[str]:
    return set(contents.read(image).binaries)


def test_image_of_each_form_has_the_same_files(layout: Path, tmp_path: Path) -> None:
    expected = {"bin/p", "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64/libb.so", "usr/lib64/libc.so.1"}
    forms = (layout, pack_folder(layout, tmp_path / "a.tar"), pack_folder(layout, tmp_path / "a.tar.gz"))
    for form in (*forms, write_docker(tmp_path / "d.tar")):
        assert binaries(open_image(str(form))) == expected, form


def test_inspect_archive_prints_fault_and_exits_1(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(layout), "--platform", "linux/amd64"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  loader  4 ELF files resolved as /lib64/ld-linux-x86-64.so.2 does",
        "  size    2.11 kB unpacked, 752 B replaced or removed by a later layer",
        "fault: /bin/p: missing liba.so: not in the image",
        "1 fault",
    ]
    assert main(["inspect", str(write_docker(layout.with_suffix(".tar"), Entrypoint=["/gone"]))]) == 1
    assert "fault: /gone: does not start as Entrypoint: /gone does not exist" in capsys.readouterr().out.splitlines()


def test_inspect_with_pages_that_no_host_has_is_refused(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(layout), "--page-size", "64K"]) == 1
    assert "no host of linux/amd64 has pages of 65536 bytes" in capsys.readouterr().err


def test_inspect_stack_is_held_to_what_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = elf("", gpu=fatbin((2, 80, 0)))
    path = write_layout(
        tmp_path / "efa", [(members_archive(("opt/nccl-tests/all_reduce_perf", program)), "tar", bytes)]
    )
    monkeypatch.setattr(selection, "image", lambda *_: open_image(str(path)))
    compiled = plan.make("efa").image().spec.compiled["/opt/nccl-tests/*"]
    assert main(["inspect", "efa", "--json"]) == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert {fault["file"] for fault in faults} == {"/opt/nccl-tests/all_reduce_perf"}
    assert {fault["reason"] for fault in faults} == {f"it has sm_80; /opt/nccl-tests/* is compiled for {compiled}"}


GRACE = {"flavor": "megatron", "platform": "linux/arm64", "nodes": "aks-gb200", "inspection": {"requirements": True}}


@every(
    "options, expected",
    [
        ((), {"cannot be mapped", "user 1 requires sample<1"}),
        (("--page-size", "4K"), {"user 1 requires sample<1"}),
        (("--no-requirements",), {"cannot be mapped"}),
        (("--page-size", "4K", "--no-requirements"), set()),
    ],
)
def test_inspect_stack_asks_what_its_gate_asks(
    options: tuple[str, ...],
    expected: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = "opt/venv/lib/python3.11/site-packages"
    files: list[Member] = [
        ("lib/ld-linux-aarch64.so.1", elf("ld-linux-aarch64.so.1", machine=183, data=b"\0/lib/\0/usr/lib/\0")),
        ("opt/liba.so", elf("liba.so", machine=183, shifted=4096)),
        (f"{site}/user-1.dist-info/METADATA", b"Name: user\nVersion: 1\nRequires-Dist: sample<1\n"),
        (f"{site}/sample-2.dist-info/METADATA", b"Name: sample\nVersion: 2\n"),
    ]
    layout = write_layout(tmp_path / "grace", [(members_archive(*files), "tar", bytes)], "arm64")
    config = flavors.load({"registry": {"kind": "local"}, **GRACE}, "stack t")
    spec = plan.make("megatron-gb200").image().spec.model_copy(update={"platform": "linux/arm64", "compiled": {}})
    planned = SimpleNamespace(config=config, image=lambda *_: SimpleNamespace(spec=spec))
    monkeypatch.setattr(plan, "make", lambda *_: planned)
    monkeypatch.setattr(selection, "image", lambda *_: open_image(str(layout)))
    assert main(["inspect", "t", "--json", *options]) == bool(expected)
    assert {fault["missing"] for fault in json.loads(capsys.readouterr().out)["faults"]} == expected


def test_inspect_markdown_has_faults_and_a_table(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(layout), "--markdown"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"### `{layout}` `linux/amd64`: 1 fault",
        "",
        "- `/bin/p: missing liba.so: not in the image`",
        "",
        "| What | In the image |",
        "| --- | --- |",
        "| loader | `4 ELF files resolved as /lib64/ld-linux-x86-64.so.2 does` |",
        "| size | `2.11 kB unpacked, 752 B replaced or removed by a later layer` |",
    ]


def test_inspect_lists_plugins_and_unread_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members: list[Member] = [
        ("usr/lib64/libucc.so.1", elf("libucc.so.1")),
        ("usr/lib64/ucc/libucc_cl_basic.so", elf()),
        ("usr/lib64/ucc/libucc_mc_cpu.so", elf()),
        ("usr/lib64/ucc/libucc_tl_ucp.so", elf(needed=["libucp.so.0"])),
        ("usr/lib64/libnccl.so.2", elf("libnccl.so.2")),
        ("opt/ofi/libnccl-net.so", elf("libnccl-net.so")),
        ("usr/lib/sysimage/rpm/Packages.db", b"RpmP"),
    ]
    path = write_layout(tmp_path / "ucc", [LAYERS[0], (members_archive(*members), "tar", bytes)])
    assert main(["inspect", str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[2:-3] == [
        "  plugins       libucc.so.1 (2 of 3)",
        "  NCCL network  sockets: InfiniBand needs libibverbs.so.1; for /usr/lib64/libnccl.so.2",
        "  not opened    /opt/ofi/libnccl-net.so by libnccl.so.2: in no folder that is searched",
        "  owners        not known of /usr/lib/sysimage/rpm/Packages.db: a database in the format ndb of rpm",
    ]


def test_inspect_image_without_fault_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_layout(tmp_path / "whole", LAYERS[:1])
    assert main(["inspect", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["platform"], result["faults"], result["loader"]["resolved"]) == ("linux/amd64", [], 4)


@every("content", [LOWER, bytes(1024)])
def test_inspect_plain_layer_named_gzip_is_read(tmp_path: Path, content: bytes) -> None:
    image = open_image(str(write_layout(tmp_path / "plain", [*LAYERS, (content, "tar+gzip", bytes)])))
    assert "bin/p" in binaries(image)


@every(
    "content, kind",
    [
        (b"no archive" * 100, "tar"),
        (gzip.compress(LOWER)[:-30], "tar+gzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "tar+zstd"),
    ],
)
def test_inspect_broken_layer_is_one_line(
    tmp_path: Path, content: bytes, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_layout(tmp_path / "broken", [(content, kind, bytes)])
    assert main(["inspect", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "malformed layer archive" in error


@every(
    "index, error",
    [
        ("x", "index.json is not JSON"),
        ("[" * 5000, "index.json is not JSON"),
        ("[]", "malformed layout"),
        ('{"manifests": []}', "without an image|of several images"),
        ('{"manifests": [{"digest": "sha256:aa"}]}', "'sha256:aa' is no digest of a blob"),
        ('{"manifests": [{"digest": 3}]}', "'3' is no digest of a blob"),
    ],
)
def test_open_broken_layout_is_refused(tmp_path: Path, index: str, error: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(SlipwayError, match=error):
        open_image(str(tmp_path))


def test_open_manifest_of_another_size_than_stated_is_refused(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["size"] += 1
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(SlipwayError, match="bytes, and its manifest states"):
        open_image(str(layout))


def test_open_what_is_no_image_is_refused(tmp_path: Path, layout: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    (tmp_path / "empty").mkdir()
    for name, error in (("text", "no archive"), ("empty", "no OCI layout"), ("gone", "no such file")):
        with pytest.raises(SlipwayError, match=error):
            open_image(str(tmp_path / name))
    next(path for path in (layout / "blobs/sha256").iterdir() if path.read_bytes()[:2] == b"\x1f\x8b").write_bytes(
        b"{}"
    )
    with pytest.raises(SlipwayError, match="a blob is corrupt"):
        binaries(open_image(str(layout)))


def test_open_layout_for_other_platform_is_refused(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(layout), "--platform", "linux/arm64"]) == 1
    assert "an index without an image for linux/arm64: linux/amd64 (sha256:" in capsys.readouterr().err


@every(
    "arguments, error",
    [
        (["--gpu", "H1000"], "--gpu: 'H1000' is no known GPU"),
        (["--driver", "new"], "--driver: 'new' is no version, such as 570.86.15"),
    ],
)
def test_inspect_wrong_option_is_one_line(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "./x", *arguments]) == 1
    assert capsys.readouterr().err.startswith(error)


def test_bytes_that_are_hashed_buy_time_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an image with 20 GB of zeros, which are few bytes to send; not without end."""
    spent = 0.0
    monkeypatch.setattr(time, "process_time", lambda: spent)
    left = budget.Budget("acme/image")
    spent = 50.0
    left.check(21 << 30)
    left.count_time()
    spent = 52.0
    with pytest.raises(SlipwayError, match="took 52 s of the processor"):
        left.count_time()
    endless = budget.Budget("acme/image")
    endless.check(1 << 50)
    spent += 59
    with pytest.raises(SlipwayError, match="took 59 s of the processor"):
        endless.count_time()


@every("kind, pack, hashed", [("tar", bytes, 1), ("tar+gzip", gzip.compress, 2)])
def test_archive_that_is_not_compressed_is_hashed_once(
    tmp_path: Path, kind: str, pack: Callable[[bytes], bytes], hashed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = open_image(str(write_layout(tmp_path / "layout", [(LOWER, kind, pack)])))
    digests = Mock(wraps=hashlib.sha256)
    monkeypatch.setattr(hashlib, "sha256", digests)
    image.index(image.layers[0], contents.facts)
    assert digests.call_count == hashed
