"""The registry: the one that SLIPWAY_REGISTRY names, else Debian's docker-registry on this machine's loopback."""

import http.client
import json
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import STARTING, Checkout
from toolchain.machine import apt
from toolchain.machine.files import write
from toolchain.machine.steps import output, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine
from toolchain.parts.part import Kind, Part, recall, remember
from toolchain.registry_login import docker_configuration, registry_account, registry_port

NAME: Final = "registry"
VARIABLE: Final = "SLIPWAY_REGISTRY"
PORTS: Final = range(5000, 5100)
"""The first free one is used from then on, as it is part of the images' names."""
START_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 3.0


def answers(address: str) -> bool:
    """Return whether a registry answers at `host:port`, over HTTPS or plain HTTP, with or without a login.

    Certificates are not verified here, because the engine may trust others.
    """
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - nothing but a status is read
    first = address.startswith(f"{registry_port.LOOPBACK}:")
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


def _runs(checkout: Checkout, port: int) -> bool:
    """Return whether ours answers on a port, and only to who has the login."""
    if not registry_port.is_ours(checkout, port):
        return False
    statuses = [_status(port, {}), _status(port, {"Authorization": registry_account.header(checkout)})]
    return statuses == [http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.OK]


def _status(port: int, headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection(registry_port.LOOPBACK, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/v2/", headers=dict(headers))
        return int(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _part(checkout: Checkout, port: int, version: str) -> Part:
    address = registry_port.address(port)
    return Part(
        NAME,
        f"Debian's docker-registry at {address}",
        version,
        f"{VARIABLE} names none",
        {VARIABLE: address, docker_configuration.VARIABLE: str(docker_configuration.folder(checkout))},
        [str(checkout.bin)],  # which has the credential helper
    )


def _running(checkout: Checkout) -> Part | None:
    noted = recall(checkout, NAME)
    for port in registry_port.ports(checkout)[-1:]:
        if noted and noted == _part(checkout, port, noted.version) and _runs(checkout, port):
            return noted
    return None


def _configured(checkout: Checkout) -> Part | None:
    """Return the registry in the environment, unless that is or was ours, from a sourced .slipway/env.

    Raises ToolchainError if it does not answer; an engine on another machine may reach others.
    """
    address = os.environ.get(VARIABLE)
    if not address or address in map(registry_port.address, registry_port.ports(checkout)):
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
            probe.bind((registry_port.LOOPBACK, port))
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
        "storage": {"filesystem": {"rootdirectory": str(storage(checkout))}, "delete": {"enabled": True}},
        "http": {"addr": registry_port.address(port)},
        "auth": {"htpasswd": {"realm": "slipway", "path": str(registry_account.write_htpasswd(checkout))}},
    }
    file = registry_port.folder(checkout) / "config.yml"
    write(file, json.dumps(config, indent=2) + "\n")  # JSON is YAML
    environment = child_environment("docker-registry")
    registry_port.daemon(checkout).start(
        [program, "serve", file], lambda: _runs(checkout, port), env=environment, seconds=START_SECONDS
    )
    registry_port.keep(checkout, port)


def _start_on_a_free_port(checkout: Checkout, program: str) -> int:
    for port in registry_port.ports(checkout)[-1:] + list(PORTS):
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
            f"the Docker engine is on another machine and cannot push to a registry on this one's loopback: "
            f"set {VARIABLE} to the host:port of a registry that both reach"
        )
    docker_configuration.save(checkout)
    if part := _running(checkout):
        return part
    registry_port.daemon(checkout).stop()
    registry = program(checkout)
    with step("Starting Debian's docker-registry"):
        port = _start_on_a_free_port(checkout, registry)
    return remember(checkout, _part(checkout, port, output([registry, "--version"]).split()[-1]))


def own_address(checkout: Checkout) -> str | None:
    """Return where our registry answers; None if it does not run."""
    part = _running(checkout)
    return part.env[VARIABLE] if part else None


def storage(checkout: Checkout) -> Path:
    """Return the data folder of our registry."""
    return registry_port.folder(checkout) / "data"


def collect(checkout: Checkout) -> None:
    """Delete the blobs that no manifest of our registry names. It is stopped meanwhile, and started again."""
    registry, port = program(checkout), registry_port.ports(checkout)[-1]
    stop(checkout)
    try:
        output([registry, "garbage-collect", registry_port.folder(checkout) / "config.yml"], timeout=600)
    finally:
        _start(checkout, registry, port)


def stop(checkout: Checkout) -> bool:
    """Stop our registry. Returns whether it ran."""
    return registry_port.daemon(checkout).stop()


KIND: Final = Kind(NAME, find, get, missing=f"not running: {STARTING} starts it")
