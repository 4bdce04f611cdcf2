"""The provider's own configuration: which Docker daemon, and credentials for `getRegistryImage`."""

from __future__ import annotations

import difflib
import json
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from pulumi.runtime.proto import provider_pb2

from containers.engine.connection import Address, EngineUnreachable
from containers.engine.engine import Engine, client_certificates, default_hosts
from containers.errors import SlipwayError
from toolchain.provider.image_diff import changed
from toolchain.provider.provider_base import Properties, Secret, Unknown, has_unknown, plain

_ENVIRONMENT: Final = {
    "host": "DOCKER_HOST",
    "caMaterial": "DOCKER_CA_MATERIAL",
    "certMaterial": "DOCKER_CERT_MATERIAL",
    "keyMaterial": "DOCKER_KEY_MATERIAL",
    "certPath": "DOCKER_CERT_PATH",
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_KEYS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys((*_ENVIRONMENT, "context", "version", "pluginDownloadURL"), (_is_text, "text")),
    "sshOpts": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of strings"),
    "registryAuth": (
        lambda value: isinstance(value, list) and all(isinstance(item, dict) and item.get("address") for item in value),
        "a list of objects, each with an address",
    ),
    "disableDockerDaemonCheck": (lambda value: isinstance(value, bool), "true or false"),
}
"""By key: the check of a value, and the expected type in words."""


def check(news: Properties) -> tuple[Properties, list[str]]:
    """Check the provider's configuration; return it, and a line for each mistake.

    Values other than text become JSON in one canonical form, so equal configurations never differ. A `registryAuth`
    with a password becomes a secret.

    Raises SlipwayError: text stands in place of JSON.
    """
    checked: Properties = {}
    failures = []
    for key, raw in news.items():
        value = plain(raw)
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" Did you mean `docker:{near[0]}`?" if near else ""
            failures.append(f"`docker:{key}` is not a valid configuration key for the docker provider.{hint}")
            continue
        fits, expected = _KEYS[key]
        if value is None or has_unknown(value):
            checked[key] = raw
            continue
        if fits is not _is_text:
            value = _parsed(key, value)
        if not fits(value):
            failures.append(f"`docker:{key}`: expected {expected}. Check `pulumi config get docker:{key}`.")
            continue
        text = value if fits is _is_text else json.dumps(value, sort_keys=True, separators=(",", ":"))
        hidden = isinstance(raw, Secret) or (key == "registryAuth" and any("password" in item for item in value))
        checked[key] = Secret(text) if hidden else text
    return checked, failures


def diff(olds: Properties, news: Properties) -> provider_pb2.DiffResponse:
    """Compare configurations. A change never replaces the provider; unknown values count as unchanged."""
    unknown = {key for key, value in news.items() if isinstance(value, Unknown)}
    kinds = {key: kind for key, kind in changed(olds, news, operator.eq) if key not in unknown}
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if kinds else provider_pb2.DiffResponse.DIFF_UNKNOWN,
        diffs=sorted(kinds),
        detailedDiff={key: provider_pb2.PropertyDiff(kind=kind, inputDiff=True) for key, kind in kinds.items()},
    )


def settings(variables: Mapping[str, str]) -> Properties:
    """Return the configuration that the engine passes, `docker:config:<name>` to text, completed from the environment.

    Raises SlipwayError: text stands in place of JSON.
    """
    config: Properties = {}
    for key, text in variables.items():
        name = key.removeprefix("docker:config:")
        config[name] = _parsed(name, text) if _KEYS.get(name, (_is_text, ""))[0] is not _is_text else text
    for name, variable in _ENVIRONMENT.items():
        if name not in config and os.environ.get(variable):
            config[name] = os.environ[variable]
    return config


def _parsed(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise SlipwayError(f"docker:{key}: expected {_KEYS[key][1]}, written as JSON: {error}") from error


def address(config: Properties, host: str) -> Address:
    """Return a host's address with the configured certificates and options.

    Raises SlipwayError: for keys that contradict each other or cannot be read.
    """
    materials = {name: config.get(f"{name}Material", "") for name in ("ca", "cert", "key")}
    folder = config.get("certPath", "")
    if any(materials.values()):
        if not all(materials.values()):
            raise SlipwayError("certMaterial, keyMaterial, and caMaterial must all be specified")
        if folder:
            raise SlipwayError("when using raw certificates, certPath must not be specified")
        return Address(host, tls=materials)
    if folder:
        return Address(host, tls=client_certificates(folder))
    return Address(host, ssh=tuple(config.get("sshOpts") or ()))


def connect(config: Properties) -> Engine:
    """Connect to the configured Docker daemon.

    An ssh host is connected at its first use. Without a configured host, the user's daemon is tried after that of the
    machine.

    Raises SlipwayError: if none answers.
    """
    hosts = [config["host"]] if config.get("host") else default_hosts()
    try:
        return Engine.first(address(config, host) for host in hosts)
    except EngineUnreachable as error:
        raise SlipwayError(
            f"{error}. Start Docker, or set DOCKER_HOST or the provider's `host` to a daemon that runs"
        ) from error
