"""Parts of the provider's tests: a plugin, a real Docker engine, a real registry, one with a password, a shell."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.helpers import registry_api
from tests.helpers.free_port import free_port
from tests.helpers.needs import mounting
from tests.provider.plugin import Plugin, started
from toolchain.checkout import Checkout
from toolchain.parts.docker_registry import program as docker_registry

USER, PASSWORD = "parity", "correct-horse"
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuZ0Fx87Pb/Aqb0E90lfvCwzXnaFKUHpS\n"
"""PASSWORD, hashed with bcrypt, the one way docker-registry takes."""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files below a folder: path to content."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return folder


@pytest.fixture(scope="session")
def docker_host() -> str:
    """The Docker engine's address."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    docker.DockerClient(base_url=host).ping()
    return host


@pytest.fixture(scope="session")
def engine(docker_host: str) -> docker.DockerClient:
    """A client of the Docker engine that is not the provider's own."""
    return docker.DockerClient(base_url=docker_host, timeout=120)


@pytest.fixture(scope="session")
def registry(docker_host: str) -> str:  # noqa: ARG001 - the engine must be there to push
    """The address of a registry on this machine."""
    address = os.environ.get("SLIPWAY_REGISTRY", "")
    assert address, "SLIPWAY_REGISTRY must name a registry on this machine (`make test` sets it)"
    registry_api.fetch(f"http://{address}/v2/")
    return address


@dataclass
class Registry:
    """A registry of our own that can be stopped and started again."""

    folder: Path
    port: int
    megabytes: int = 0
    host: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        command = [docker_registry(Checkout.here()), "serve", str(self.folder / "config.yml")]
        if self.megabytes:  # a disk of its own, which only the registry sees
            mount = f"mount -t tmpfs -o size={self.megabytes}m none '{self.folder / 'data'}'"
            command = [*mounting(), "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("docker-registry did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def private_registry(
    folder: Path, *, htpasswd: str = "", megabytes: int = 0, host: str = "127.0.0.1", tls: tuple[str, str] | None = None
) -> Iterator[Registry]:
    """Run a registry on a free port; ``htpasswd`` limits its users, and ``megabytes`` its disk space.

    ``tls`` are its certificate and key, as PEM.
    """
    registry = Registry(folder, free_port(), megabytes, host)
    (folder / "data").mkdir()
    auth = ""
    if htpasswd:
        (folder / "htpasswd").write_text(htpasswd)
        auth = f"auth: {{htpasswd: {{realm: parity, path: {folder / 'htpasswd'}}}}}\n"
    encrypted = ""
    if tls:
        for name, pem in zip(("certificate", "key"), tls, strict=True):
            (folder / f"{name}.pem").write_text(pem)
        encrypted = f", tls: {{certificate: {folder / 'certificate.pem'}, key: {folder / 'key.pem'}}}"
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\n"
        f'http: {{addr: "{registry.address}"{encrypted}}}\n{auth}'
    )
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


@pytest.fixture(scope="session")
def locked_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that requires USER and PASSWORD."""
    with private_registry(tmp_path_factory.mktemp("locked"), htpasswd=_HTPASSWD) as registry:
        yield registry


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static shell with the usual commands, for build steps of an image from scratch."""
    installed = shutil.which("busybox")
    if installed:
        return Path(installed)
    folder = tmp_path_factory.mktemp("busybox")
    subprocess.run(["apt-get", "download", "busybox-static"], cwd=folder, check=True, capture_output=True)
    package = next(folder.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    return next(path for path in folder.rglob("bin/busybox") if path.is_file())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the program, in which the plugin runs."""
    return tmp_path_factory.mktemp("program")


@pytest.fixture(scope="module")
def plugin(program: Path, docker_host: str) -> Iterator[Plugin]:
    """The selected provider, configured for the Docker engine, without the user's Docker credentials."""
    with started(program) as running:
        running.configure(host=docker_host)
        yield running


@pytest.fixture
def folder(program: Path) -> Path:
    """A test's folder, below the program's directory."""
    unique_folder = program / f"t{secrets.token_hex(4)}"
    unique_folder.mkdir()
    return unique_folder


@pytest.fixture
def repository(registry: str) -> str:
    """A unique name for a test's image, without a tag."""
    return f"{registry}/parity/{secrets.token_hex(4)}"
