"""`docker.get_registry_image`: the digest of a name in a registry."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.provider.conftest import PASSWORD, USER, Registry, private_registry
from tests.provider.plugin import SELECTED, Failure, Plugin, started
from toolchain.provider.provider_base import decode_struct

TOKEN = "docker:index/getRegistryImage:getRegistryImage"


def look_up(folder: Path, login: dict[str, Any] | None, **args: Any) -> dict[str, Any]:
    registries = {"registryAuth": json.dumps([login])} if login else {}
    with started(folder) as plugin:
        plugin.configure(**registries)
        response = plugin.invoke(TOKEN, args)
        assert not response.failures
        return decode_struct(getattr(response, "return"))


def pushed(engine: docker.DockerClient, name: str, **auth: str) -> str:
    """Push an image without the provider; return its digest."""
    engine.api.import_image_from_data(bytes(1024), repository=name, tag="v1")  # an empty tar
    output = engine.api.push(name, tag="v1", auth_config=auth or None)
    engine.images.remove(f"{name}:v1", force=True)
    match = re.search(r"v1: digest: (sha256:\w+)", output)
    assert match, output
    return match[1]


@pytest.fixture
def open_image(engine: docker.DockerClient, tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """An image in a registry without a password: registry, name, digest."""
    folder = tmp_path / "open"
    folder.mkdir()
    with private_registry(folder) as registry:
        name = f"{registry.address}/parity/open"
        yield f"http://{registry.address}", name, pushed(engine, name)


def test_lookup_returns_the_digest(tmp_path: Path, open_image: tuple[str, str, str]) -> None:
    address, name, digest = open_image
    image = look_up(tmp_path, {"address": address, "authDisabled": True}, name=f"{name}:v1")
    assert image == {"id": digest, "insecureSkipVerify": False, "name": f"{name}:v1", "sha256Digest": digest}


def test_lookup_of_unknown_tag_fails(tmp_path: Path, open_image: tuple[str, str, str]) -> None:
    address, name, _ = open_image
    with pytest.raises(Failure, match="404 Not Found") as failure:
        look_up(tmp_path, {"address": address, "authDisabled": True}, name=name)
    assert SELECTED == "official" or "\n" not in str(failure.value)


def test_lookup_over_plain_http_needs_configuration(tmp_path: Path, open_image: tuple[str, str, str]) -> None:
    with pytest.raises(Failure, match=f"https://{open_image[1].partition('/')[0]}"):
        look_up(tmp_path, None, name=f"{open_image[1]}:v1")


def test_lookup_with_password_returns_digest(
    tmp_path: Path, engine: docker.DockerClient, locked_registry: Registry
) -> None:
    name = f"{locked_registry.address}/parity/looked-up"
    digest = pushed(engine, name, username=USER, password=PASSWORD)
    login = {"address": f"http://{locked_registry.address}", "username": USER, "password": PASSWORD}
    assert look_up(tmp_path, login, name=f"{name}:v1")["sha256Digest"] == digest
    with pytest.raises(Failure, match="bad credentials: 401") as failure:
        look_up(tmp_path, {**login, "password": "wrong-password"}, name=f"{name}:v1")
    assert "wrong-password" not in str(failure.value)


def test_lookup_with_docker_configuration_succeeds(
    tmp_path: Path, engine: docker.DockerClient, locked_registry: Registry
) -> None:
    name = f"{locked_registry.address}/parity/looked-up"
    digest = pushed(engine, name, username=USER, password=PASSWORD)
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    content = json.dumps({"auths": {locked_registry.address: {"auth": auth}}})
    login = {"address": f"http://{locked_registry.address}", "configFileContent": content}
    assert look_up(tmp_path, login, name=f"{name}:v1")["sha256Digest"] == digest


def test_lookup_without_name_is_refused(plugin: Plugin) -> None:
    (failure,) = plugin.invoke(TOKEN, {}).failures
    assert "name" in failure.reason


def test_unknown_function_is_refused(plugin: Plugin) -> None:
    with pytest.raises(Failure, match="unrecognized data function"):
        plugin.invoke("docker:index/getNothing:getNothing", {})
