"""The registry: the one that SLIPWAY_REGISTRY names, else Debian's docker-registry on this machine's loopback."""

import http.client
import json
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from stacks.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.machine.daemon import Daemon
from toolchain.machine.files import write
from toolchain.machine.steps import output, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine
from toolchain.parts.part import Kind, Part, recall, remember

NAME: Final = "registry"
VARIABLE: Final = "SLIPWAY_REGISTRY"
LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(5000, 5100)
"""The first free one is used from then on, as it is part of the images' names."""
START_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 3.0


def _config_file(checkout: Checkout) -> Path:
    return checkout.state / "registry" / "config.yml"


def _port_file(checkout: Checkout) -> Path:
    return checkout.state / "registry" / "port"


def daemon(checkout: Checkout) -> Daemon:
    """Return our registry, running or not."""
    return Daemon(
        NAME, _config_file(checkout).with_name("pid"), checkout.logs / "registry.log", mark=str(_config_file(checkout))
    )


def _port(checkout: Checkout) -> int | None:
    try:
        return int(_port_file(checkout).read_text())
    except (FileNotFoundError, ValueError):
        return None


def answers(address: str) -> bool:
    """Return whether a registry answers at `host:port`, over HTTPS or plain HTTP, with or without a login.

    Certificates are not verified here, because the engine may trust others.
    """
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - nothing but a status is read
    first = address.startswith(f"{LOOPBACK}:")
    for scheme in ("http", "https") if first else ("https", "http"):
        try:
            with urllib.request.urlopen(f"{scheme}://{address}/v2/", timeout=ANSWER_SECONDS, context=context):  # noqa: S310
                return True
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.UNAUTHORIZED:
                return True
        except (OSError, http.client.HTTPException, ValueError):
            continue
    return False


def _listens(pid: int | None, port: int) -> bool:
    """Return whether this process listens on a port, and not one of another checkout."""
    address = f"{int.from_bytes(socket.inet_aton(LOOPBACK), 'little'):08X}:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    sockets = {f"socket:[{fields[9]}]" for fields in lines if fields[1] == address and fields[3] == "0A"}
    try:
        return any(str(file.readlink()) in sockets for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _runs(checkout: Checkout, port: int) -> bool:
    return _listens(daemon(checkout).pid(), port) and answers(f"{LOOPBACK}:{port}")


def _running(checkout: Checkout) -> Part | None:
    port = _port(checkout)
    noted = recall(checkout, NAME)
    if port is None or noted is None or not _runs(checkout, port):
        return None
    return noted if noted.env == {VARIABLE: f"{LOOPBACK}:{port}"} else None


def _configured(checkout: Checkout) -> Part | None:
    """Return the registry that the environment names, unless that is ours, from a sourced .slipway/env.

    Raises ToolchainError if it does not answer; an engine on another machine may reach others.
    """
    address = os.environ.get(VARIABLE)
    if not address or address == f"{LOOPBACK}:{_port(checkout)}":
        return None
    if not docker_engine.is_elsewhere(checkout) and not answers(address):
        raise ToolchainError(
            f"no registry answers at {VARIABLE}={address} (host:port): start it, or unset {VARIABLE} to get one"
        )
    return Part(NAME, address, "configured", env={VARIABLE: address})


def find(checkout: Checkout) -> Part | None:
    """Return the configured registry, else ours if it runs."""
    return _configured(checkout) or _running(checkout)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def program(checkout: Checkout) -> str:
    """Return docker-registry: from PATH, else out of its Debian package (installing that would start a service).

    Raises ToolchainError where it is not available.
    """
    on_path = shutil.which("docker-registry")
    unpacked = checkout.bin / "docker-registry"
    if on_path is None and not unpacked.exists():
        try:
            apt.unpack(checkout, "docker-registry", "usr/bin/docker-registry", unpacked)
        except ToolchainError as error:
            raise ToolchainError(
                f"no registry ({error}): install docker-registry, or set {VARIABLE} to one that you have"
            ) from None
    return on_path or str(unpacked)


def _start(checkout: Checkout, program: str, port: int) -> None:
    config = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(checkout.state / "registry" / "data")},
            "delete": {"enabled": True},
        },
        "http": {"addr": f"{LOOPBACK}:{port}"},
    }
    write(_config_file(checkout), json.dumps(config, indent=2) + "\n")  # JSON is YAML
    environment = child_environment("docker-registry")
    daemon(checkout).start(
        [program, "serve", _config_file(checkout)],
        lambda: _runs(checkout, port),
        env=environment,
        seconds=START_SECONDS,
    )
    write(_port_file(checkout), f"{port}\n")


def _start_on_a_free_port(checkout: Checkout, program: str) -> int:
    earlier = _port(checkout)
    for port in ([earlier] if earlier else []) + list(PORTS):
        if not _is_free(port):
            continue
        try:
            _start(checkout, program, port)
        except ToolchainError:
            if _is_free(port):
                raise
            continue  # another process took the port in between
        return port
    raise ToolchainError(
        f"no free port for the registry between {PORTS[0]} and {PORTS[-1]}: free one, or set {VARIABLE}"
    )


def get(checkout: Checkout) -> Part:
    """Get a registry that answers."""
    if part := _configured(checkout):
        return remember(checkout, part)
    if docker_engine.is_elsewhere(checkout):
        raise ToolchainError(
            f"the Docker engine is on another machine and cannot push to a registry on this one's {LOOPBACK}: "
            f"set {VARIABLE} to the host:port of a registry that both reach"
        )
    if part := _running(checkout):
        return part
    daemon(checkout).stop()
    registry = program(checkout)
    with step("Starting Debian's docker-registry"):
        port = _start_on_a_free_port(checkout, registry)
    version = output([registry, "--version"]).split()[-1]
    return remember(
        checkout,
        Part(
            NAME,
            f"Debian's docker-registry at {LOOPBACK}:{port}",
            version,
            f"{VARIABLE} names none",
            {VARIABLE: f"{LOOPBACK}:{port}"},
        ),
    )


def stop(checkout: Checkout) -> bool:
    """Stop our registry. Returns whether it ran."""
    return daemon(checkout).stop()


KIND: Final = Kind(NAME, find, get, missing="not running: `make up` or `make ready` starts it")
