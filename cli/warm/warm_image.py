"""An image with warm layers on it: the image as it is, and a layer and a line of history more for each."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, cast

from cli.warm.warm_record import WarmRecord
from containers.errors import SlipwayError
from containers.image.layers import zstd_layer
from containers.image.registry_image import Image
from containers.registry.client import Repository

_OCI: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_DOCKER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_LEVEL: Final = 3
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class WarmLayer:
    """A warm layer: what it is for, the digest of its archive, and its descriptor in a manifest."""

    record: WarmRecord
    diff_id: str
    descriptor: Mapping[str, Any]

    def attested(self) -> dict[str, Any]:
        """Return what an attestation says of the layer."""
        record = {**vars(self.record), "machine": [*self.record.machine]}
        return {"diffId": self.diff_id, "key": self.record.key, **record}


def compressed(archive: IO[bytes], target: IO[bytes], record: WarmRecord, image: Image) -> WarmLayer:
    """Compress a layer's archive as the image's own layers are: whoever pulls these can pull it."""
    if any(each.media_type.endswith("zstd") for each in image.layers):
        layer, kind = zstd_layer.compress(archive, target, _LEVEL), zstd_layer.MEDIA_TYPE
    else:
        layer = _gzip(archive, target)
        kind = _DOCKER if image.manifest.media_type == _DOCKER_MANIFEST else _OCI
    return WarmLayer(record, layer.diff_id, {"mediaType": kind, "digest": layer.digest, "size": layer.size})


def _gzip(archive: IO[bytes], target: IO[bytes]) -> zstd_layer.CompressedLayer:
    plain = hashlib.sha256()
    with gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=0) as file:
        while block := archive.read(_BLOCK):
            plain.update(block)
            file.write(block)
    target.seek(0)
    digest = hashlib.file_digest(target, "sha256")  # type: ignore[arg-type]
    return zstd_layer.CompressedLayer(f"sha256:{plain.hexdigest()}", f"sha256:{digest.hexdigest()}", target.tell())


def image_below(warm: Image) -> str:
    """Return the digest of the image that the history names below the warm layers; empty if it has none."""
    records = map(WarmRecord.of, _config(warm).get("history") or [])
    return next((record.image for record in records if record), "")


def warm_layers(image: Image, warm: Image) -> list[WarmLayer]:
    """Return the warm layers that an image has above ``image``.

    Raises SlipwayError: it is not made of ``image`` and warm layers of it alone.
    """
    count = len(image.layers)
    config = _config(warm)
    history = [entry for entry in config.get("history") or [] if not entry.get("empty_layer")]
    records = [WarmRecord.of(entry) for entry in history[count:]]
    added = cast("Sequence[Mapping[str, Any]]", warm.manifest.content["layers"])[count:]
    own = [record for record in records if record and record.image == image.digest]
    if warm.layers[:count] != image.layers or len(own) != len(added) or _settings(config) != _settings(_config(image)):
        raise SlipwayError(f"{warm.reference}: it is not {image.digest} with warm layers alone")
    return [
        WarmLayer(record, layer.diff_id, dict(descriptor))
        for record, layer, descriptor in zip(own, warm.layers[count:], added, strict=True)
    ]


def push(
    image: Image, layers: Sequence[WarmLayer], blobs: Mapping[str, IO[bytes]], target: Repository, tag: str
) -> str:
    """Push an image with warm layers under a tag; return its digest. ``blobs`` has those that may be missing."""
    config = _config(image)
    config["rootfs"] = {
        **config["rootfs"],
        "diff_ids": [*config["rootfs"]["diff_ids"], *(each.diff_id for each in layers)],
    }
    config["history"] = [*_history(image, config), *(each.record.history() for each in layers)]
    body = json.dumps(config, separators=(",", ":"), sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    target.push_blob(digest, len(body), io.BytesIO(body))
    for layer in layers:
        name = layer.descriptor["digest"]
        if name in blobs:
            blobs[name].seek(0)
            target.push_blob(name, layer.descriptor["size"], blobs[name])
    content = dict(image.manifest.content)
    content["config"] = {**content["config"], "digest": digest, "size": len(body)}
    content["layers"] = [*content["layers"], *(each.descriptor for each in layers)]
    manifest = json.dumps(content, separators=(",", ":")).encode()
    target.put(tag, manifest, image.manifest.media_type)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _config(image: Image) -> dict[str, Any]:
    return image.repository.json(image.manifest.content["config"]["digest"], image.config_size)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all of a configuration but its layers."""
    return {name: value for name, value in config.items() if name not in {"rootfs", "history"}}


def _history(image: Image, config: Mapping[str, Any]) -> list[Any]:
    """Return the image's history with a line for each of its layers, which not every builder writes."""
    history = list(config.get("history") or [])
    missing = len(image.layers) - sum(not entry.get("empty_layer") for entry in history)
    return [*({} for _ in range(missing)), *history]
