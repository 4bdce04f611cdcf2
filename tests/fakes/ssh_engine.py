"""A Docker engine behind a real ssh server: Debian's, in a container that shares the tests' engine."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.images.engine import base_image, client, docker, unique

DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server && mkdir -p /run/sshd
"""
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"


class SshEngine:
    """The server, on a port of the loopback, and a folder with an ``ssh`` that knows it and has a key of its own.

    Args:
        folder: for keys, configuration and the program.
        engine: the engine behind it, `unix://...`.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder
        self._socket = engine.removeprefix("unix://")
        self._tag = unique("ssh-engine")
        self._container = ""
        self.programs = folder / "bin"
        self.address = ""

    def __enter__(self) -> Self:
        self.programs.mkdir(parents=True)
        (self._folder / "Dockerfile").write_text(DOCKERFILE)
        key = self._folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(key.with_suffix(".pub"), self._folder / "authorized")
        docker(
            "build",
            "--network=host",
            "--build-arg",
            f"BASE_IMAGE={base_image()}",
            "--tag",
            self._tag,
            self._folder,
        )
        volumes = [f"{self._folder}/authorized:/authorized:ro", f"{self._socket}:/var/run/docker.sock"]
        options = [word for volume in [*volumes, f"{client()}:/usr/bin/docker:ro"] for word in ("--volume", volume)]
        server = ["/usr/sbin/sshd", "-D", "-e", "-o", "AuthorizedKeysFile=/authorized", "-o", "StrictModes=no"]
        self._container = docker(
            "run", "--detach", "--publish", "127.0.0.1::22", *options, self._tag, *server
        ).stdout.strip()
        port = docker("port", self._container, "22/tcp").stdout.strip().rpartition(":")[2]
        self.address = f"ssh://root@127.0.0.1:{port}"
        host_key = docker("exec", self._container, "cat", _HOST_KEY).stdout
        (self._folder / "hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
        (self._folder / "config").write_text(
            f"IdentityFile {key}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {self._folder}/hosts\n"
            "StrictHostKeyChecking yes\n"
        )
        program = self.programs / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self._folder}/config "$@"\n')
        program.chmod(0o755)
        end = time.monotonic() + 20
        while "listening" not in self._log():
            assert time.monotonic() < end, self._log()
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        docker("rm", "--force", self._container, check=False)
        docker("rmi", "--force", self._tag, check=False)

    @property
    def logins(self) -> int:
        """How many connections the server has let in."""
        return self._log().count("Accepted publickey for root")

    def forget_key(self) -> None:
        """Let the key in no longer."""
        (self._folder / "authorized").write_text("")

    def stop(self) -> None:
        """End the server."""
        docker("stop", "--time", "1", self._container)

    def _log(self) -> str:
        return docker("logs", self._container).stdout
