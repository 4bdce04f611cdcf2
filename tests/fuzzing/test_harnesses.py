"""The harnesses take their seeds, and what the fuzzer or a reader found in the parsers is answered at once."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from oci import registry_image
from oci.binaries import elf_file
from oci.client import Manifest, Repository
from oci.gpu import gpu_code
from oci.layers import packages
from stacks import lock
from stacks.errors import SlipwayError
from tests.fuzzing.harnesses import HARNESSES, _berkeley_db
from tests.helpers import elf_writer

SECONDS = 5
"""No input of a few kilobytes takes longer: the ones below were endless, or took minutes."""

FOUND: Mapping[str, tuple[str, bytes]] = {
    "a container of GPU code that is nowhere over": ("fatbin", struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) * 4),
    "a chain of pages in a circle": (
        "rpm",
        _berkeley_db()[: 2 * 512] + struct.pack("<16xIHH2x", 2, 0, 1).ljust(512, b"\0"),
    ),
    "a stack nested too deep": ("stack", b"[" * 200_000),
    "a stack of nested mappings": ("stack", b"a: {" * 200_000 + b"}" * 200_000),
    "a stack of nested lists": ("stack", b"- " * 100_000),
    "a lock nested too deep": ("lock", b"a = " + b"[" * 60_000),
    "a lock of numbers": ("lock", b"a = 1\nb = 2026-01-01\n"),
}


@pytest.mark.parametrize("name", HARNESSES)
def test_harness_takes_its_seeds(name: str) -> None:
    seeds = list(HARNESSES[name].seeds)
    assert seeds
    for seed in seeds:
        HARNESSES[name].run(seed)


@pytest.mark.parametrize("case", FOUND)
def test_parser_answers_what_was_found(case: str) -> None:
    name, data = FOUND[case]
    begun = time.process_time()
    HARNESSES[name].run(data)
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (elf_writer.elf(needs={"a": ("v",) * 40_000, "b": ("v",) * 40_000}), "more than 65536 symbol versions"),
        (elf_writer.elf(needed=("x" * 60_000,) * 300), "names of more than 16777216 bytes"),
    ],
    ids=["versions", "names"],
)
def test_library_with_endless_tables_is_malformed(data: bytes, problem: str) -> None:
    assert elf_file.read(io.BytesIO(data), len(data)).problem == f"malformed: {problem}"


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
