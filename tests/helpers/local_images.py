"""Images on this machine for tests: an OCI layout, and what ``docker save`` wrote."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from tests.helpers.elf_writer import LOADER, elf, loader
from tests.helpers.layers import members_archive

OCI = "application/vnd.oci.image"
PLATFORM = {"os": "linux", "architecture": "amd64"}
LOWER = members_archive(
    ("usr/lib64/ld-linux-x86-64.so.2", loader()),
    ("lib64", "usr/lib64"),
    ("opt/gone/liba.so", elf("liba.so")),
    ("opt/old/liba.so", elf("liba.so")),
    ("usr/lib64/libb.so", elf("libb.so")),
)
UPPER = members_archive(
    ("opt/gone/.wh..wh..opq", b""),
    ("opt/old/.wh.liba.so", b""),
    ("usr/lib64/libc.so.1", "=usr/lib64/libb.so"),
    ("bin/p", elf(needed=["liba.so", "libb.so", "libc.so.1"], interpreter=LOADER)),
)
LAYERS = [(LOWER, "tar+gzip", gzip.compress), (UPPER, "tar+zstd", zstandard.ZstdCompressor().compress)]


def write_layout(
    folder: Path, layers: Sequence[tuple[bytes, str, Callable[[bytes], bytes]]], architecture: str = "amd64"
) -> Path:
    """Write an OCI layout with an index of one image and an attestation."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    platform = {**PLATFORM, "architecture": architecture}

    def blob(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content), "mediaType": media_type, **more}

    packed = [blob(pack(content), f"{OCI}.layer.v1.{kind}") for content, kind, pack in layers]
    diff_ids = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content, _, _ in layers]
    config = blob(
        json.dumps({**platform, "rootfs": {"diff_ids": diff_ids}, "config": {}}).encode(), f"{OCI}.config.v1+json"
    )
    manifest = blob(
        json.dumps({"config": config, "layers": packed}).encode(), f"{OCI}.manifest.v1+json", platform=platform
    )
    attestation = blob(b"{}", f"{OCI}.manifest.v1+json", platform={"os": "unknown", "architecture": "unknown"})
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest, attestation]}))
    return folder


def pack_folder(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        archive.add(folder, arcname=".")
    return path


def write_docker(path: Path, **config: Any) -> Path:
    """Write what older engines save: a layer in a folder, and a link to it for the same layer once more."""
    lower, upper = (f"sha256:{hashlib.sha256(each).hexdigest()}" for each in (LOWER, UPPER))
    config = {**PLATFORM, "rootfs": {"diff_ids": [lower, upper, upper]}, "config": config}
    files = {"config.json": json.dumps(config).encode(), "a/layer.tar": LOWER, "b/layer.tar": gzip.compress(UPPER)}
    layers = ["a/layer.tar", "b/layer.tar", "c/layer.tar"]
    files["manifest.json"] = json.dumps([{"Config": "config.json", "RepoTags": ["x:1"], "Layers": layers}]).encode()
    path.write_bytes(members_archive(*files.items(), ("c/layer.tar", "../b/layer.tar")))
    return path
