"""Layers of zstd have the same bytes whatever compresses them, and each decoder reads them."""

from __future__ import annotations

import hashlib
import io
import os
import random
from typing import IO, cast

import pytest
import zstandard

from containers.image.layers import zstd_layer
from tests.helpers.every import every

PATTERN = random.Random(1)
CONTENTS = {
    "nothing": b"",
    "one block": bytes(PATTERN.choices(b"slipway ", k=100)),
    "more than a job": b"".join(PATTERN.randbytes(900) + bytes(600) for _ in range(7_000)),
}


class Piecemeal:
    """A stream that comes in pieces of one size."""

    def __init__(self, content: bytes, piece: int) -> None:
        self._stream, self._piece = io.BytesIO(content), piece

    def read(self, size: int) -> bytes:
        return self._stream.read(min(size, self._piece))


def compressed(content: bytes, level: int, piece: int = 1 << 20) -> tuple[zstd_layer.CompressedLayer, bytes]:
    target = io.BytesIO()
    return zstd_layer.compress(cast("IO[bytes]", Piecemeal(content, piece)), target, level), target.getvalue()


@every("content", CONTENTS.values(), CONTENTS)
@every("level", [1, 3, 9])
def test_bytes_are_equal_on_any_number_of_cores(content: bytes, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compressed(content, level)
    for cores, piece in ((1, 1000), (2, 65536), (16, 999_983)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert compressed(content, level, piece) == first


def test_bytes_of_whole_jobs_are_equal_on_slow_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that is slower than what it is given has not begun the last job when the archive ends."""
    monkeypatch.setattr(zstd_layer, "_BLOCK", 1 << 20)
    content, blobs = PATTERN.randbytes(1 << 23) * 6, []
    for cores in (1, 2):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        blobs.append(compressed(content, 1))
    assert blobs[0] == blobs[1]


@every("content", CONTENTS.values(), CONTENTS)
def test_result_names_archive_and_blob(content: bytes) -> None:
    layer, blob = compressed(content, 3)
    assert layer.diff_id == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert layer.digest == f"sha256:{hashlib.sha256(blob).hexdigest()}"
    assert layer.size == len(blob)
    assert zstandard.ZstdDecompressor().decompressobj().decompress(blob) == content


@every("level", [1, 4, 19])
def test_each_level_has_a_window_of_8_mb(level: int) -> None:
    """A decoder may refuse a larger window (RFC 8878)."""
    _, blob = compressed(bytes(9 << 20), level)
    assert zstandard.get_frame_parameters(blob).window_size == 8 << 20
    assert zstandard.get_frame_parameters(blob).has_checksum


def test_bytes_of_the_pinned_library_stay() -> None:
    """A changed digest is pushed again everywhere: a new library is a decision."""
    layer, _ = compressed(CONTENTS["more than a job"], 3)
    assert [zstd_layer.method(level) for level in (3, 19)] == ["zstd1.5.7-3-23-8388608", "zstd1.5.7-19-23"]
    assert layer.digest == "sha256:7fbec0c7315c9e091efa2da438a64a51317585486b5beda89642f0c2d4e773b6"
