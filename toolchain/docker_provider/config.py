"""The provider's own configuration: which Docker daemon, and credentials for `getRegistryImage`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolchain.docker_provider.engine import Address, Engine, Unreachable
from toolchain.provider_base import ProviderError

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
_ENVIRONMENT: Final = {
    "host": "DOCKER_HOST",
    "caMaterial": "DOCKER_CA_MATERIAL",
    "certMaterial": "DOCKER_CERT_MATERIAL",
    "keyMaterial": "DOCKER_KEY_MATERIAL",
    "certPath": "DOCKER_CERT_PATH",
}
_USER_SOCKETS: Final = (".docker/run/docker.sock", ".docker/desktop/docker.sock")
"""Where Docker Desktop listens for a user without administrator's rights, below the home directory."""


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Read the configuration as the engine passes it, with the environment behind it.

    Args:
        variables: `docker:config:<name>` to text; what is not text is JSON.
    """
    given = {key.removeprefix("docker:config:"): value for key, value in variables.items()}
    for name, variable in _ENVIRONMENT.items():
        if name not in given and os.environ.get(variable):
            given[name] = os.environ[variable]
    return given


def address(given: Mapping[str, str], host: str) -> Address:
    """Make an address of a host and the configured keys.

    Raises:
        ProviderError: for keys that do not go together or cannot be read.
    """
    materials = tuple(given.get(name, "") for name in ("caMaterial", "certMaterial", "keyMaterial"))
    folder = given.get("certPath", "")
    if any(materials):
        if not all(materials):
            raise ProviderError("certMaterial, keyMaterial, and caMaterial must all be specified")
        if folder:
            raise ProviderError("when using raw certificates, certPath must not be specified")
        return Address(host, certificates=(materials[0], materials[1], materials[2]))
    if folder:
        try:
            texts = [Path(folder, name).read_text(encoding="utf-8") for name in ("ca.pem", "cert.pem", "key.pem")]
        except OSError as error:
            raise ProviderError(f"certPath {folder}: {error.filename}: {error.strerror}") from error
        return Address(host, certificates=(texts[0], texts[1], texts[2]))
    try:
        options = json.loads(given.get("sshOpts") or "[]")
    except ValueError as error:
        raise ProviderError(f"sshOpts: expected a JSON list of strings: {error}") from error
    return Address(host, ssh_options=tuple(options))


def connect(given: Mapping[str, str]) -> Engine:
    """Connect to the configured Docker daemon.

    An ssh host is not tried before it is needed. Where no host is configured, the user's own daemon is tried after the
    machine's.

    Raises:
        ProviderError: if none answers.
    """
    hosts = [given["host"]] if given.get("host") else [DEFAULT_HOST]
    if not given.get("host"):
        hosts += [f"unix://{Path.home() / path}" for path in _USER_SOCKETS]
    failures = []
    for host in hosts:
        try:
            return Engine.connect(address(given, host))
        except Unreachable as error:
            failures.append(str(error))
    raise ProviderError(
        f"failed to connect to any docker daemon ({'; '.join(failures)}). Start Docker, or set DOCKER_HOST or the "
        "provider's `host` to a daemon that runs"
    )
