"""What a run needs besides the engine: a registry of its own, a parent image of its own, and no trace left behind."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, DockerException

from bench.bench_error import BenchError
from stacks.config.load import build
from stacks.config.stack_config import StackConfig
from toolchain.checkout import Checkout
from toolchain.machine.daemon import Daemon
from toolchain.parts.local_registry import LOOPBACK, answers, program

PARENT: Final = "debian:bookworm-slim"
_START_SECONDS: Final = 15.0
_MANIFESTS: Final = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
_PRUNE_AT_ONCE: Final = 5000
"""Ids in one request: they stand in its address, and the engine looks at all of its cache for each."""


@dataclass(frozen=True)
class Registry:
    """A registry on this machine: its ``host:port``, and the folder that it keeps everything in."""

    address: str
    data: Path

    def stored(self) -> int:
        """Return how many bytes it holds: between two moments, what it has received."""
        return sum(file.stat().st_size for file in self.data.rglob("*") if file.is_file())

    def compressed(self, reference: str) -> int:
        """Return the size of an image, ``host/path@digest``, as it is pulled: its configuration and its layers."""
        name, _, digest = reference.partition("/")[2].partition("@")
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request("GET", f"/v2/{name}/manifests/{digest}", headers={"Accept": _MANIFESTS})
            manifest = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return int(manifest["config"]["size"]) + sum(int(layer["size"]) for layer in manifest["layers"])


@contextmanager
def registry(checkout: Checkout, folder: Path) -> Iterator[Registry]:
    """Run a registry in a folder, for as long as it is needed: everyone's own would keep what is pushed here."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    found = Registry(f"{LOOPBACK}:{port}", folder / "data")
    config = folder / "config.yml"
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "warn"},
                "storage": {"filesystem": {"rootdirectory": str(found.data)}},
                "http": {"addr": found.address},
            }
        )
    )
    daemon = Daemon("the benchmark's registry", folder / "pid", folder / "log", mark=str(config))
    daemon.start(
        [program(checkout), "serve", config], lambda: answers(found.address), env=os.environ, seconds=_START_SECONDS
    )
    try:
        yield found
    finally:
        daemon.stop()


class Engine:
    """The Docker engine, as far as a run uses it directly."""

    def __init__(self, checkout: Checkout) -> None:
        self._ours = os.environ.get("DOCKER_HOST") == f"unix://{checkout.run / 'docker.sock'}"
        try:
            self._client: Any = docker.from_env(timeout=600)
            self._client.ping()
        except DockerException as error:
            raise BenchError(f"no Docker engine: {error}") from None

    def parent(self) -> str:
        """Return where the engine pulls the parent image from, by the mirrors of this environment."""
        return build(StackConfig, {"flavor": "bench"}, "bench").mirrors.image(PARENT)

    def check_space(self, needed: int) -> None:
        """See that so many bytes are free where the engine keeps its data, if that is on this machine.

        Raises:
            BenchError: they are not.
        """
        root = self._client.info()["DockerRootDir"]
        if Path(root).is_dir() and (free := shutil.disk_usage(root).free) < needed:
            raise BenchError(f"{root}: {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB needed for its images")

    def new_parent(self, name: str, mark: str) -> str:
        """Push the parent image with one more file, which says ``mark``: nothing built on it comes from a cache.

        Returns:
            The image's name, with its tag.
        """
        dockerfile = io.BytesIO(f"FROM {self.parent()}\nRUN echo {mark} > /etc/bench\n".encode())
        try:
            self._client.images.build(fileobj=dockerfile, tag=name, rm=True, pull=True)
        except DockerException as error:
            raise BenchError(f"{name}: {error}") from None
        self._push(name)
        return name

    def publish(self, image: str, name: str) -> str:
        """Push an image that the engine has by another name, and return its reference there, ``host/path@digest``."""
        try:
            self._client.images.get(image).tag(name)
            self._push(name)
            references = self._client.images.get(name).attrs["RepoDigests"]
        except DockerException as error:
            raise BenchError(f"{name}: {error}") from None
        found: str = next(reference for reference in references if reference.startswith(f"{name}@"))
        return found

    def _push(self, name: str) -> None:
        try:
            for line in self._client.images.push(name, stream=True, decode=True):
                if "error" in line:
                    raise BenchError(f"{name}: {line['error']}")
        except DockerException as error:
            raise BenchError(f"{name}: {error}") from None

    @contextmanager
    def pulled(self, reference: str) -> Iterator[None]:
        """Pull an image, and remove it in the end."""
        self._client.images.pull(reference)
        try:
            yield
        finally:
            self._remove(reference)

    def unpacked(self, reference: str) -> int:
        """Return the bytes of an image's files, over all its layers."""
        return int(self._client.images.get(reference).attrs["Size"])

    def layers(self, reference: str) -> list[str]:
        """Return the diff ids of an image's layers, its parent's first."""
        found: list[str] = self._client.images.get(reference).attrs["RootFS"]["Layers"]
        return found

    @contextmanager
    def tidied(self, address: str) -> Iterator[None]:
        """Remove in the end what came to be meanwhile: the images of a registry, and new build cache that is unused.

        Build cache does not say whose it is, so in an engine that is not the checkout's own it is left as it is.
        """
        before = set(self._cache()) if self._ours else set()
        try:
            yield
        finally:
            for image in self._client.images.list(all=False):
                # By name: the same image may have another, of the user's.
                for name in [*image.attrs["RepoTags"], *image.attrs["RepoDigests"]]:
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
            if error.status_code not in {404, 409}:  # gone already, or in somebody's use
                raise

    def _prune(self, records: list[str]) -> None:
        for start in range(0, len(records), _PRUNE_AT_ONCE):
            chosen = "|".join(records[start : start + _PRUNE_AT_ONCE])
            self._client.api.prune_builds(filters={"id": f"^({chosen})$"}, all=True)
