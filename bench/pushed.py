"""Images that are pushed as they are made, by the registry's API: layers that do not compress, and no engine."""

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
from bench.services import Registry

_CHUNK: Final = 1 << 22
_BLOCK: Final = 512
_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass(frozen=True)
class Layer:
    """A layer that a registry has: its blob, with its bytes, and the digest of what it unpacks to."""

    digest: str
    size: int
    diff_id: str


class Repository:
    """A repository to push to."""

    def __init__(self, registry: Registry, path: str) -> None:
        self.name = f"{registry.address}/{path}"
        self._url = f"http://{registry.address}/v2/{path}"
        self._session = requests.Session()

    def layer(self, files: Iterator[tuple[str, int]]) -> Layer:
        """Push a layer of files, given by path and size, of random bytes; it is held nowhere."""
        plain, packed = hashlib.sha256(), hashlib.sha256()
        size = 0

        def blob() -> Iterator[bytes]:
            nonlocal size
            compress = zlib.compressobj(level=0, wbits=31)  # random bytes do not get less
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
        return Layer(digest, size, f"sha256:{plain.hexdigest()}")

    def image(self, tag: str, layers: Sequence[Layer]) -> str:
        """Push an image of layers that are there; return its name with its tag."""
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
        self._did(self._session.put(url, data=json.dumps(manifest), headers=headers, timeout=60))
        return f"{self.name}:{tag}"

    def _push(self, content: Iterator[bytes], digest: Any) -> str:
        """Upload a blob in one stream; what its digest is, is known when all of it has been sent."""
        where = self._did(self._session.post(f"{self._url}/blobs/uploads/", timeout=60)).headers["Location"]
        where = self._did(self._session.patch(where, data=content, timeout=600)).headers["Location"]
        found: str = digest()
        self._did(self._session.put(where, params={"digest": found}, timeout=600))
        return found

    def _did(self, answer: requests.Response) -> requests.Response:
        if not answer.ok:
            raise BenchError(f"{self.name}: the registry answers {answer.status_code}: {answer.text[:200]}")
        return answer


def _archive(files: Iterator[tuple[str, int]]) -> Iterator[bytes]:
    for path, size in files:
        member = tarfile.TarInfo(path)
        member.size = size
        yield member.tobuf()
        for start in range(0, size, _CHUNK):
            yield os.urandom(min(_CHUNK, size - start))
        yield bytes(-size % _BLOCK)
    yield bytes(2 * _BLOCK)
