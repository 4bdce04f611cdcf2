"""The engine of a benchmark, a temporary registry, a fresh parent image, and their removal."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
import requests
from docker.errors import APIError, DockerException

from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks.config.load import build
from stacks.config.stack_config import StackConfig
from toolchain.checkout import Checkout
from toolchain.machine.daemon import Daemon
from toolchain.parts.docker_registry import answers, program
from toolchain.registry_login.registry_port import LOOPBACK

PARENT: Final = "debian:bookworm-slim"
_START_SECONDS: Final = 15.0
_PRUNE_AT_ONCE: Final = 5000
"""Ids in one request: they are in its URL, and the engine scans its whole cache for each."""
_UPLOADED: Final = re.compile(r'"PUT /v2/\S+/blobs/uploads/\S+[?&]digest=sha256(?::|%3A)([0-9a-f]{64})\S* \S+" 201 ')
"""A completed upload of a blob in the registry's access log."""


@dataclass(frozen=True)
class LoopbackRegistry:
    """A registry on this machine: its ``host:port``, its data folder, and its log."""

    address: str
    data: Path
    log: Path

    def stored(self) -> int:
        """Return the size of its data in bytes; the difference of two calls is the received data."""
        return sum(file.stat().st_size for file in self.data.rglob("*") if file.is_file())

    def uploads(self) -> list[int]:
        """Return the sizes in bytes of all blobs that clients have sent so far, again those sent again."""
        blobs = self.data / "docker" / "registry" / "v2" / "blobs" / "sha256"
        return [(blobs / digest[:2] / digest / "data").stat().st_size for digest in uploaded(self.log.read_text())]

    def delete(self, reference: str) -> None:
        """Delete a manifest, ``host/path@digest``, and the tags that name it.

        Raises:
            SlipwayError: the registry does not.
        """
        image = Reference.of(reference)
        response = requests.delete(f"http://{self.address}/v2/{image.path}/manifests/{image.digest}", timeout=60)
        if not response.ok:
            raise SlipwayError(f"{reference}: the registry responds {response.status_code}: {response.text[:200]}")


def uploaded(log: str) -> list[str]:
    """Return the SHA-256 of each blob whose upload an access log of the registry reports."""
    return _UPLOADED.findall(log)


@contextmanager
def registry(checkout: Checkout, folder: Path) -> Iterator[LoopbackRegistry]:
    """Run a temporary registry in a folder, which goes with it; the user's own would keep the benchmark's images."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    started = LoopbackRegistry(f"{LOOPBACK}:{port}", folder / "data", folder / "log")
    config = folder / "config.yml"
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "warn"},
                "storage": {"filesystem": {"rootdirectory": str(started.data)}, "delete": {"enabled": True}},
                "http": {"addr": started.address},
            }
        )
    )
    daemon = Daemon("the benchmark's registry", folder / "pid", started.log, mark=str(config))
    daemon.start(
        [program(checkout), "serve", config], lambda: answers(started.address), env=os.environ, seconds=_START_SECONDS
    )
    try:
        yield started
    finally:
        daemon.stop()
        shutil.rmtree(folder)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise SlipwayError, which begins with ``what``, where the engine's client fails in the block."""
    try:
        yield
    except DockerException as error:
        raise SlipwayError(f"{what}: {error}") from None


class MeasuredEngine:
    """A Docker engine: the one of the environment, or another one by its address."""

    def __init__(self, checkout: Checkout, host: str = "") -> None:
        self._ours = not host and os.environ.get("DOCKER_HOST") == f"unix://{checkout.run / 'docker.sock'}"
        with _failing("no Docker engine"):
            self._client: Any = docker.DockerClient(host, timeout=600) if host else docker.from_env(timeout=600)
            self._client.ping()

    def parent(self) -> str:
        """Return the parent image's reference, with the mirrors of this environment."""
        return build(StackConfig, {"flavor": "bench"}, "bench").mirrors.image(PARENT)

    def check_space(self, needed: int) -> None:
        """Check the free bytes on the disk of the engine's data, if it is on this machine.

        Raises:
            SlipwayError: fewer than ``needed`` are free.
        """
        root = self._client.info()["DockerRootDir"]
        if Path(root).is_dir() and (free := shutil.disk_usage(root).free) < needed:
            raise SlipwayError(f"{root}: {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB needed for its images")

    def build(self, folder: Path, name: str, arguments: Mapping[str, str]) -> None:
        """Build the image of a folder and push it.

        Raises:
            SlipwayError: one of both fails.
        """
        self._build_and_push(name, path=str(folder), buildargs=dict(arguments))

    def output(self, image: str, command: Sequence[str], platform: str) -> str:
        """Pull an image for a platform, and return what a command prints in it.

        Raises:
            SlipwayError: the image is not for the platform, or the command fails.
        """
        with _failing(f"{image} for {platform}"):
            self._client.images.pull(image, platform=platform)
            printed: bytes = self._client.containers.run(image, list(command), platform=platform, remove=True)
        return printed.decode()

    def new_parent(self, name: str, mark: str) -> str:
        """Push the parent image with one more file, which contains ``mark``, so no cache has its children.

        Returns:
            The image's name, with its tag.
        """
        dockerfile = io.BytesIO(f"FROM {self.parent()}\nRUN echo {mark} > /etc/bench\n".encode())
        self._build_and_push(name, fileobj=dockerfile)
        return name

    def publish(self, image: str, name: str) -> None:
        """Push an image of the engine under another name."""
        with _failing(name):
            self._client.images.get(image).tag(name)
            self._push(name)

    def _build_and_push(self, name: str, **source: Any) -> None:
        with _failing(name):
            self._client.images.build(tag=name, rm=True, pull=True, **source)
            self._push(name)

    def _push(self, name: str) -> None:
        for line in self._client.images.push(name, stream=True, decode=True):
            if "error" in line:
                raise SlipwayError(f"{name}: {line['error']}")

    @contextmanager
    def pulled(self, reference: str) -> Iterator[None]:
        """Pull an image, and remove it when the block ends."""
        self._client.images.pull(reference)
        try:
            yield
        finally:
            self._remove(reference)

    def unpacked(self, reference: str) -> int:
        """Return the size of an image's files in bytes."""
        return int(self._client.images.get(reference).attrs["Size"])

    @contextmanager
    def tidied(self, address: str) -> Iterator[None]:
        """Remove a registry's images and new unused build cache when the block ends.

        Build cache has no owner, so that of an engine other than the checkout's stays.
        """
        before = set(self._cache()) if self._ours else set()
        try:
            yield
        finally:
            # Not `images.list`, which asks again for each image: another program may have removed it.
            for image in self._client.api.images():
                # By name: the user may have another name for the same image.
                for name in [*(image["RepoTags"] or []), *(image["RepoDigests"] or [])]:
                    if name.startswith(f"{address}/"):
                        self._remove(name)
            if self._ours:
                self._prune([record for record in self._cache() if record not in before])

    def _cache(self) -> list[str]:
        return [record["ID"] for record in self._client.api.df()["BuildCache"] or []]

    def _remove(self, image: str) -> None:
        try:
            self._client.images.remove(image, force=True)
        except APIError as error:
            if error.status_code not in {404, 409}:  # already removed, or in use
                raise

    def _prune(self, records: list[str]) -> None:
        for start in range(0, len(records), _PRUNE_AT_ONCE):
            chosen = "|".join(records[start : start + _PRUNE_AT_ONCE])
            self._client.api.prune_builds(filters={"id": f"^({chosen})$"}, all=True)
