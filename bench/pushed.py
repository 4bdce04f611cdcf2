"""Synthetic images that are pushed to a registry without an engine, with incompressible layers."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.services import LoopbackRegistry
from containers.registry.client import Repository

_CHUNK: Final = 1 << 22
_BLOCK: Final = 512
_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass(frozen=True)
class PushedLayer:
    """A pushed layer: digest and size of its blob in bytes; ``diff_id`` is the digest of its archive."""

    digest: str
    size: int
    diff_id: str


class PushRepository:
    """A repository to push to."""

    def __init__(self, registry: LoopbackRegistry, path: str) -> None:
        self.name = f"{registry.address}/{path}"
        self._folder = registry.data.parent

    def layer(self, files: Iterator[tuple[str, int]]) -> PushedLayer:
        """Push a layer of files of random bytes, given by path and size."""
        plain, compress = hashlib.sha256(), zlib.compressobj(level=0, wbits=31)  # random bytes do not compress
        with tempfile.TemporaryFile(dir=self._folder) as blob:
            for chunk in _archive(files):
                plain.update(chunk)
                blob.write(compress.compress(chunk))
            blob.write(compress.flush())
            size = blob.tell()
            blob.seek(0)
            digest = f"sha256:{hashlib.file_digest(blob, 'sha256').hexdigest()}"
            blob.seek(0)
            Repository(f"{self.name}@{digest}").push_blob(digest, size, blob)
        return PushedLayer(digest, size, f"sha256:{plain.hexdigest()}")

    def image(self, tag: str, layers: Sequence[PushedLayer]) -> str:
        """Push an image of pushed layers; return its reference."""
        rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        reference = f"{self.name}:{tag}"
        repository = Repository(reference)
        repository.push_blob(digest, len(config), io.BytesIO(config))
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest, "size": len(config)},
            "layers": [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
        repository.put(tag, json.dumps(manifest).encode(), _MANIFEST)
        return reference


def _archive(files: Iterator[tuple[str, int]]) -> Iterator[bytes]:
    for path, size in files:
        member = tarfile.TarInfo(path)
        member.size = size
        yield member.tobuf()
        for start in range(0, size, _CHUNK):
            yield os.urandom(min(_CHUNK, size - start))
        yield bytes(-size % _BLOCK)
    yield bytes(2 * _BLOCK)
