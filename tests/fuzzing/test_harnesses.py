"""The harnesses take their seeds, and what the fuzzer or a reader found in the parsers is answered at once."""

from __future__ import annotations

import datetime
import importlib.util
import io
import json
import sqlite3
import struct
import tarfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.image import registry_image
from containers.image.binaries import loader_config
from containers.image.gpu import gpu_code
from containers.image.layers import packages
from containers.registry.client import Manifest, Repository
from stacks import lock
from tests.fakes.vulnerability_scanner import REPORT
from tests.fuzzing import network_answers
from tests.fuzzing.__main__ import INSTRUMENTED, tonight
from tests.fuzzing.harnesses import _MANIFEST, DIGEST, HARNESSES, _berkeley_db
from tests.helpers import elf_writer, rpm_writer

SECONDS = 5
"""No input of a few kilobytes takes longer: the ones below were endless, or took minutes."""

_GLIBC = b"glibc-ld.so.cache1.1"
_ENTRIES = 3000
_SHARED = (
    _GLIBC
    + struct.pack("<IIB19x", _ENTRIES, 0, 0)
    + b"".join(struct.pack("<iIIIII", 3, *(2 * [48 + 24 * _ENTRIES + each]), 0, 0, 0) for each in range(_ENTRIES))
    + b"x" * 100_000
    + b"\0"
)
"""A cache whose 3,000 entries share a text."""


_OF_LINES = {
    "buildDefinition": {
        "externalParameters": {"configSource": {"uri": "\n\x1b[2J", "digest": {"sha1": ""}}},
        "internalParameters": {"uncommitted": False},
    },
    "runDetails": {"builder": {"id": "\n"}, "metadata": {"finishedOn": "\n"}},
}


def _view() -> bytes:
    """Return a database whose rows are computed: one header, eight million times."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(a)")
        connection.executemany("INSERT INTO t VALUES(?)", [(each,) for each in range(200)])
        connection.execute("CREATE TABLE h(a)")
        connection.execute("INSERT INTO h VALUES(?)", [rpm_writer.header("bash", "5.1", "1") + bytes(200_000)])
        connection.execute("CREATE VIEW Packages AS SELECT h.a AS blob FROM t, t AS b, t AS c, h")
        connection.commit()
        return connection.serialize()


def _match(**vulnerability: object) -> dict[str, Any]:
    """Return a match of Grype's with other fields."""
    match: dict[str, Any] = REPORT["matches"][0]
    return {**match, "vulnerability": {**match["vulnerability"], **vulnerability}}


def _exbibytes() -> bytes:
    """Return an archive that ends where a file begins."""
    member = tarfile.TarInfo("x")
    member.size = 1 << 62
    return member.tobuf(tarfile.GNU_FORMAT)


FOUND: Mapping[str, tuple[str, bytes]] = {
    "a container of GPU code that is nowhere over": ("fatbin", struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) * 4),
    "a chain of pages in a circle": (
        "rpm",
        _berkeley_db()[: 2 * 512] + struct.pack("<16xIHH2x", 2, 0, 1).ljust(512, b"\0"),
    ),
    "a stack nested too deep": ("stack", b"[" * 200_000),
    "a stack of nested mappings": ("stack", b"a: {" * 200_000 + b"}" * 200_000),
    "a stack of nested lists": ("stack", b"- " * 100_000),
    "a loader's cache that ends in its head": ("records", b"ld.so-1.7.0\0"),
    "a loader's cache with two texts in one": ("records", _SHARED),
    "a loader's configuration that includes itself": (
        "records",
        b"include ld.so.conf\n" + b"include ld.so.conf.d/*.conf\n" * 5000,
    ),
    "a size without an end": (
        "records",
        b'{"paths_data": {"paths": [{"_path": "a", "sha256": "b", "size_in_bytes": 1e999}]}}',
    ),
    "an image of endless bytes": (
        "oci",
        json.dumps({**_MANIFEST, "config": {"digest": DIGEST, "size": float("inf")}}).encode(),
    ),
    "a package's name with a long space": ("dpkg", b"Package: a" + b" " * 200_000 + b"b\n"),
    "a next page at an address without an end": (
        "github",
        network_answers.GITHUB_ANSWERS[1].replace(b'>; rel="next"', b"<?" * 20_000),
    ),
    "a challenge of one word": (
        "registry",
        b"\0HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer " + b"a" * 65_000 + b"\r\n\r\n",
    ),
    "a challenge of one word to the provider": (
        "registry",
        b"\6HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer " + b"a" * 65_000 + b"\r\n\r\n",
    ),
    "a long address to go to": ("registry", b"\3HTTP/1.1 307 X\r\nLocation: http://x/" + b"<" * 30_000 + b"\r\n\r\n"),
    "a table of computed rows": ("rpm-sqlite", _view()),
    "provenance of another program": ("attested", b'{"sbom": {}, "provenance": {"buildDefinition": {}}}'),
    "provenance with lines of its own": (
        "attested",
        json.dumps({"sbom": {}, "provenance": _OF_LINES}).encode(),
    ),
    "a wheel's name without a version": ("index", b"\0HTTP/1.1 200 X\r\n\r\n<a href=linux_x86_64.whl>"),
    "a requirement with a long space": (
        "index",
        network_answers.index_of_wheel(network_answers._wheel(f"a{' ' * 20_000})(")),
    ),
    "a wheel of many platforms": (
        "index",
        b"\0HTTP/1.1 200 X\r\n\r\n<a href=" + b"-" * 5000 + b"linux" * 5000 + b"_x86_64.whx>",
    ),
    "a page with a section of no name": ("index", b"\0HTTP/1.1 200 X\r\n\r\n<![=>"),
    "a wheel's page with a section of no name": ("index", b"\1HTTP/1.1 200 X\r\n\r\n<![=>"),
    "a page in another encoding": ("index", b"\0HTTP/1.1 200 X\r\n\r\n\xff"),
    "no HTTP in place of an archive": ("index", b"\x02x\r\n"),
    "a layer that ends before a file of exbibytes": ("layer", _exbibytes()),
    "a list of tags without an end": (
        "registry",
        b'\x01HTTP/1.1 200 X\r\nLink: </x?n=1>; rel="next"\r\n\r\n{"tags": ["1"]}',
    ),
    "a next page at no address": (
        "registry",
        b'\x01HTTP/1.1 200 X\r\nLink: <//[>; rel="next"\r\n\r\n{"tags": ["1"]}',
    ),
    "a chunk of fewer bytes than none": (
        "registry",
        b"\x03HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
    ),
    "a token in a list": (
        "registry",
        b'\x06HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer realm="http://localhost/"\r\n\r\n\n--\nHTTP/1.1 200 X\r\n\r\n[]',
    ),
    "a chunk of endlessly fewer bytes": (
        "registry",
        b"\x03HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n-" + b"B" * 40 + b"\r\n",
    ),
    "a token server that gets the login in clear, in capitals": (
        "registry",
        b'\x06HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer realm="HTTP://elsewhere.example/"\r\n\r\n',
    ),
    "a token server that gets the login in clear": (
        "registry",
        b'\x06HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer realm="http://elsewhere.example/"\r\n\r\n',
    ),
    "a directive with a long space": ("dockerfile", b"# syntax=x" + b" " * 200_000 + b"y\nFROM scratch\n"),
    "an argument with a long space": ("dockerfile", b"FROM scratch\nARG A=" + b" " * 200_000 + b"y\n"),
    "a Dockerfile with variables in variables": (
        "dockerfile",
        b"FROM scratch\nENV A=" + b"${A:-" * 3000 + b"}" * 3000 + b"\n",
    ),
    "a Dockerfile whose variables double": (
        "dockerfile",
        b"FROM scratch\nARG A=xxxxxxxxxx\n" + b"ENV A=$A$A\n" * 28,
    ),
    "a Dockerfile that repeats a long variable": (
        "dockerfile",
        b"FROM scratch\nARG A=" + b"x" * 60_000 + b"\n" + b"ENV B=$A$A\n" * 20_000,
    ),
    "a Dockerfile of two thousand stages": (
        "dockerfile",
        b"FROM scratch AS s0\n" + b"".join(b"FROM s%d AS s%d\n" % (each, each + 1) for each in range(2000)),
    ),
    "a class of letters without an end": ("dockerfile", b"FROM scratch\nCOPY a/" + b"[" * 60_000 + b"\\] /\n"),
    "a class of letters in the wrong order": ("dockerfile", b"FROM scratch\nCOPY a[z-a] /\n"),
    "a Dockerfile in another encoding": ("dockerfile", b"# \xff\nFROM scratch\nARG A\n"),
    "a script of empty lines": ("script", b"\n" * 200_000),
    "a script that reads in vain": (
        "script",
        b'VERSION= "$ABSENT" ' + b"for " * 40_000 + b"\nfetch-source a/b v$VERSION /\n",
    ),
    "a script of defaults without an end": ("script", b"fetch-source a/b " + b"${a:-" * 40_000),
    "wildcards that share a name": ("ignore", b"*a" * 20 + b"b\0" + b"a" * 200),
    "wildcards that share folders": ("ignore", b"**/" * 20 + b"x\0" + b"a/" * 100 + b"y"),
    "a report with a list in place of an identifier": (
        "grype",
        json.dumps({**REPORT, "matches": [_match(id=["CVE"])]}).encode(),
    ),
    "a report with a number in place of a version": (
        "grype",
        json.dumps({**REPORT, "matches": [_match(fix={"state": "fixed", "versions": [9]})]}).encode(),
    ),
    "a report nested too deep": ("grype", b'{"matches": ' + b"[" * 200_000),
    "an engine of no version": ("engine", b"\0HTTP/1.1 200 X\r\nApi-Version: 1.x\r\n\r\n"),
    "an engine that says no id": ("engine", b"\1HTTP/1.1 200 X\r\n\r\n[]"),
    "an engine's answer that ends": ("engine", b'\1HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"Id": '),
    "an engine's chunk of a negative size": (
        "engine",
        b"\6HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r-1\n0\t\r\r-A\n",
    ),
    "an engine that upgrades without HTTP": ("engine", b"\2\r\n\r\n"),
    "an engine's message that is a number": ("engine", b"\3HTTP/1.1 200 X\r\n\r\n5\r\n"),
    "an engine's message nested too deep": ("engine", b"\4HTTP/1.1 200 X\r\n\r\n" + b"[" * 200_000),
    "an engine's trace that is none": (
        "engine",
        b'\3HTTP/1.1 200 X\r\n\r\n{"id": "moby.buildkit.trace", "aux": "/w=="}\n',
    ),
    "an engine's trace that is missing": ("engine", b'\3HTTP/1.1 200 X\r\n\r\n{"id": "moby.buildkit.trace"}\n'),
    "an engine's error that is a text": ("engine", b'\3HTTP/1.1 200 X\r\n\r\n{"errorDetail": "no"}\n'),
    "an engine's progress in words": (
        "engine",
        b'\4HTTP/1.1 200 X\r\n\r\n{"status": "x", "progressDetail": {"current": "a", "total": 5}}\n',
    ),
    "an engine's refusal that ends": ("engine", b"\3HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx"),
    "an engine's long progress": ("engine", b'\4HTTP/1.1 200 X\r\n\r\n{"status": "' + b"x" * 20_000 + b'"}\n'),
    "an engine's long digest": (
        "engine",
        network_answers._first(
            5,
            network_answers._http({"aux": {"Digest": "x" * 20_000}}),
            network_answers._http({"Id": "sha256:a", "RepoDigests": []}),
        ),
    ),
    "an engine's long line": (
        "engine",
        b'\3HTTP/1.1 200 X\r\n\r\n{"stream": "' + b"x" * 100_000 + b'\\n"}\n',
    ),
    "a message that comes in pieces": (
        "engine",
        b"\4HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 50_000,
    ),
    "an archive refused with a deep reason": ("engine", b"\6HTTP/1.1 404 X\r\n\r\n" + b"[" * 60_000),
    "an engine of no platform": ("engine", b'\7HTTP/1.1 200 X\r\n\r\n{"Os": ["\xff"]}'),
    "a cluster of numbers": ("cluster", b'{"items": [5]}'),
    "a cluster whose pods have no status": ("cluster", b'{"items": [{"metadata": {"name": "x", "labels": []}}]}'),
    "a cluster nested too deep": ("cluster", b"[" * 200_000),
    "Azure's reason that is no text": ("azure", b'HTTP/1.1 400 X\r\n\r\n{"error_description": 5}'),
    "Azure's token that is no text": ("azure", b'HTTP/1.1 200 X\r\n\r\n{"access_token": ["x"]}'),
    "Azure's answer nested too deep": ("azure", b"HTTP/1.1 200 X\r\n\r\n" + b"[" * 200_000),
    "a lock nested too deep": ("lock", b"a = " + b"[" * 60_000),
    "a lock of numbers": ("lock", b"a = 1\nb = 2026-01-01\n"),
}


@pytest.mark.parametrize("name", HARNESSES)
def test_harness_takes_its_seeds(name: str) -> None:
    seeds = list(HARNESSES[name].seeds)
    assert seeds
    for seed in seeds:
        HARNESSES[name].run(seed)


@pytest.mark.parametrize("name", INSTRUMENTED)
def test_module_that_guides_the_fuzzer_exists(name: str) -> None:
    assert importlib.util.find_spec(name)


@pytest.mark.parametrize("case", FOUND)
def test_parser_answers_what_was_found(case: str) -> None:
    name, data = FOUND[case]
    begun = time.process_time()
    HARNESSES[name].run(data)
    assert time.process_time() - begun < SECONDS


def test_included_configuration_keeps_its_order() -> None:
    texts = {
        "etc/ld.so.conf": b"/first\ninclude d/a.conf\ninclude d/*.conf ld.so.conf\n/last",
        "etc/d/a.conf": b"include c.conf\n/a",
        "etc/d/b.conf": b"/b",
        "etc/d/c.conf": b"/c",
    }
    assert loader_config.configured(texts.get, texts) == ["/first", "/last", "/a", "/c", "/b"]


@pytest.mark.parametrize("entries", [7, [None], ["x"], [{"platform": {"os": "linux"}}], [{"platform": "linux"}]])
def test_malformed_index_is_refused_wherever_it_is_read(entries: object, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Manifest("sha256:" + "a" * 64, "application/vnd.oci.image.index.v1+json", {"manifests": entries}, b"")
    monkeypatch.setattr(Repository, "manifest", lambda _: index)
    for read in (registry_image.fetch, registry_image.fetch_each, registry_image.platforms):
        with pytest.raises(SlipwayError, match=r"^r\.example/x:1: malformed index: ") as error:
            read("r.example/x:1")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "byte 1 is not UTF-8; take the file from git, or delete it and run `slipway lock`"),
        (b"a = [1]", r"a: a value of type list is not a digest such as .*"),
        (b"a = " + b"[" * 9_999, "nested too deep; take the file from git, or delete it and run `slipway lock`"),
    ],
)
def test_lock_of_another_shape_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = lock.path(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(SlipwayError, match=f"^stacks/lock.toml: {message}$"):
        lock.read(tmp_path)


def test_gpu_code_after_a_broken_container_is_read() -> None:
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) + elf_writer.fatbin((2, 90, 0))
    assert [str(code) for code in gpu_code.read(io.BytesIO(data), 0, len(data))] == ["sm_90"]


def test_value_of_an_older_rpm_database_is_read() -> None:
    parse = packages.database("var/lib/rpm/Packages")
    assert parse
    assert parse(_berkeley_db()) == {"bash": "5.1-1"}


def test_tonight_gives_each_harness_its_turn() -> None:
    nights = [datetime.date(2026, 12, 25) + datetime.timedelta(days=each) for each in range(len(HARNESSES))]
    assert sorted(tonight(HARNESSES, night) for night in nights) == sorted(HARNESSES)
