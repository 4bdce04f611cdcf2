"""A layer's archive compressed with zstd, on all cores, to the same bytes on every machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import IO, Any, Final

import zstandard

MEDIA_TYPE: Final = "application/vnd.oci.image.layer.v1.tar+zstd"
_MOST_THREADS: Final = 16
"""A thread takes up to 200 MB at level 19."""
_BLOCK: Final = 1 << 17
"""Bytes of an archive that are read at once. Of 1 MiB, each piece needs new memory: 1 s of CPU for a gigabyte."""
_WINDOW_LOG: Final = 23
"""8 MiB, the most that each decoder should take (RFC 8878, 3.1.1.1.2).

The library's own at level 4 is 2 MiB. Of 1.49 GB of torch 2.6.0's libraries the larger one saves 2.5 % of the bytes.
"""
_JOB: Final = 1 << 23
"""Bytes that a thread compresses at once. The library's own size, four windows, needs new memory for each job.

Of 260 MB at level 4 that is 1.7 s of CPU in place of 2.1, and 0.14 % more bytes.
"""
_OWN_JOB: Final = 4 << _WINDOW_LOG
"""The library's own."""
_SLOW: Final = 16
"""The first level at which a thread reads half a window or more before its job, so that a small one costs too much.

zstd 1.5.7, lib/compress/zstdmt_compress.c: `ZSTDMT_overlapLog_default`.
"""


@dataclass(frozen=True)
class CompressedLayer:
    """A compressed layer: ``digest`` and ``size`` in bytes of its blob; ``diff_id`` is the digest of its archive."""

    diff_id: str
    digest: str
    size: int


def method(level: int) -> str:
    """Return what decides the bytes of a blob besides its archive: the library's version, level, window and job.

    The library's own job has no part, so that records of before there were others stay.
    """
    job = f"-{_job(level)}" if _job(level) else ""
    return f"zstd{'.'.join(map(str, zstandard.ZSTD_VERSION))}-{level}-{_WINDOW_LOG}{job}"


def compress(archive: IO[bytes], target: IO[bytes], level: int) -> CompressedLayer:
    """Compress a layer's archive into a file.

    zstd divides the archive into jobs whose size follows from the level. So the bytes depend neither on the number of
    threads, as long as there is one, nor on how the archive arrives. Without threads they are others. The archive's
    size would change them too, and not every engine states it, so zstd is not told of it.
    """
    threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=_WINDOW_LOG, job_size=_job(level), threads=threads, write_checksum=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    plain, packed, read, size = hashlib.sha256(), hashlib.sha256(), 0, 0
    ended = False
    while not ended:
        block = archive.read(_BLOCK)
        ended = not block
        read += len(block)
        plain.update(block)
        whole = read > 0 and read % (_job(level) or _OWN_JOB) == 0
        content = _ended(compressor, whole=whole) if ended else compressor.compress(block)
        packed.update(content)
        size += len(content)
        target.write(content)
    return CompressedLayer(f"sha256:{plain.hexdigest()}", f"sha256:{packed.hexdigest()}", size)


def _ended(compressor: Any, *, whole: bool) -> bytes:
    """End the frame, of ``whole`` jobs or not.

    A last job that is whole may have begun or not, by the speed of the cores: zstd ends the one with a further, empty
    block, and the other without (zstd 1.5.6, lib/compress/zstdmt_compress.c: `ZSTDMT_createCompressionJob`).
    """
    begun: bytes = compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) if whole else b""
    rest: bytes = compressor.flush()
    return begun + rest


def _job(level: int) -> int:
    """Return the size of a job in bytes; 0 is the library's own."""
    return _JOB if level < _SLOW else 0
