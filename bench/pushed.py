"""Synthetic images that are streamed to a registry without an engine, with incompressible layers."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import requests

from bench.bench_error import BenchError
from bench.services import LoopbackRegistry

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
        self._url = f"http://{registry.address}/v2/{path}"
        self._session = requests.Session()

    def layer(self, files: Iterator[tuple[str, int]]) -> PushedLayer:
        """Stream a layer of files of random bytes, given by path and size."""
        plain, packed = hashlib.sha256(), hashlib.sha256()
        size = 0

        def blob() -> Iterator[bytes]:
            nonlocal size
            compress = zlib.compressobj(level=0, wbits=31)  # random bytes do not compress
            for chunk in _archive(files):
                plain.update(chunk)
                if out := compress.compress(chunk):
                    packed.update(out)
                    size += len(out)
                    yield out
            out = compress.flush()
            packed.update(out)
            size += len(out)
            yield out

        digest = self._push(blob(), lambda: f"sha256:{packed.hexdigest()}")
        return PushedLayer(digest, size, f"sha256:{plain.hexdigest()}")

    def image(self, tag: str, layers: Sequence[PushedLayer]) -> str:
        """Push an image of pushed layers; return its reference."""
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            }
        ).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self._push(iter([config]), lambda: digest)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest, "size": len(config)},
            "layers": [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
        url, headers = f"{self._url}/manifests/{tag}", {"Content-Type": _MANIFEST}
        self._checked(self._session.put(url, data=json.dumps(manifest), headers=headers, timeout=60))
        return f"{self.name}:{tag}"

    def _push(self, content: Iterator[bytes], digest: Any) -> str:
        """Upload a blob in one stream; its digest is known at the end."""
        location = self._checked(self._session.post(f"{self._url}/blobs/uploads/", timeout=60)).headers["Location"]
        location = self._checked(self._session.patch(location, data=content, timeout=600)).headers["Location"]
        value: str = digest()
        self._checked(self._session.put(location, params={"digest": value}, timeout=600))
        return value

    def _checked(self, response: requests.Response) -> requests.Response:
        if not response.ok:
            raise BenchError(f"{self.name}: the registry responds {response.status_code}: {response.text[:200]}")
        return response


def _archive(files: Iterator[tuple[str, int]]) -> Iterator[bytes]:
    for path, size in files:
        member = tarfile.TarInfo(path)
        member.size = size
        yield member.tobuf()
        for start in range(0, size, _CHUNK):
            yield os.urandom(min(_CHUNK, size - start))
        yield bytes(-size % _BLOCK)
    yield bytes(2 * _BLOCK)
