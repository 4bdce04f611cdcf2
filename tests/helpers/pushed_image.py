"""An image without layers, pushed to a real registry."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import requests

from tests.helpers import registry_api

_MEDIA = "application/vnd.oci.image"
MANIFEST = f"{_MEDIA}.manifest.v1+json"


def push(name: str, word: str = "", created: str = "2026-11-24T12:00:00Z") -> str:
    """Push an image as ``host/path:tag``; ``word`` tells its content from others'. Return its reference by digest."""
    repository, _, tag = name.rpartition(":")
    url = _url(repository)
    rootfs = {"type": "layers", "diff_ids": []}
    values = {"architecture": "amd64", "os": "linux", "author": word, "created": created, "rootfs": rootfs}
    config = json.dumps(values).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    place = registry_api.send("POST", f"{url}/blobs/uploads/").headers["Location"]
    registry_api.send("PUT", place, config, params={"digest": digest}).raise_for_status()
    descriptor = {"mediaType": f"{_MEDIA}.config.v1+json", "size": len(config), "digest": digest}
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor,
        "layers": [],
    }
    return f"{repository}@{put_manifest(url, tag, json.dumps(manifest).encode(), MANIFEST)}"


def copy(source: str, name: str) -> str:
    """Copy what ``host/path:tag``, or one by digest, names to another name, as whoever may push can; return it by digest."""
    split = "@" if "@" in source else ":"
    repository, _, version = source.rpartition(split)
    other, _, tag = name.rpartition(":")
    fetched = registry_api.send("GET", f"{_url(repository)}/manifests/{version}", headers={"Accept": MANIFEST})
    fetched.raise_for_status()
    content = fetched.json()
    for blob in [content["config"], *content["layers"]] if other != repository else []:
        mount = {"mount": blob["digest"], "from": repository.partition("/")[2]}
        response = registry_api.send("POST", f"{_url(other)}/blobs/uploads/", params=mount)
        assert response.status_code == requests.codes.created, response.text
    return f"{other}@{put_manifest(_url(other), tag, fetched.content, MANIFEST)}"


def _url(repository: str) -> str:
    host, _, path = repository.partition("/")
    return f"http://{host}/v2/{path}"


def put_manifest(url: str, tag: str, manifest: bytes, media_type: str) -> str:
    """Push a manifest to a repository's ``url`` as it is; return its digest."""
    answer = registry_api.send("PUT", f"{url}/manifests/{tag}", manifest, {"Content-Type": media_type})
    answer.raise_for_status()
    return answer.headers["Docker-Content-Digest"]
