"""What the embedded docker provider shows to a registry that wants to know who pushes, and says of a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from toolchain.provider import image_name, inputs
from toolchain.provider.build import _push_error, _Work
from toolchain.provider.docker_api import docker_config as docker_config_
from toolchain.provider.docker_api.docker_config import Keychain
from toolchain.provider.inputs import BuildInputs, ImageInputs, RegistryInputs

HOST = "r.example"


def image(registry: RegistryInputs, *, skip_push: bool = False) -> ImageInputs:
    build = BuildInputs(
        context=".",
        dockerfile="Dockerfile",
        args={},
        builder="2",
        cache_from=[],
        add_hosts=[],
        target="",
        network="",
        platform="linux/amd64",
    )
    return ImageInputs(f"{HOST}/x:1", build, registry, skip_push)


@pytest.fixture(autouse=True)
def docker_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Docker configuration whose helper makes another token each time that it is asked."""
    helper = tmp_path / "docker-credential-counting"
    helper.write_text(
        f'#!/bin/sh\necho >> {tmp_path}/calls\necho "{{\\"ServerURL\\": \\"{HOST}\\", \\"Username\\": \\"AWS\\", '
        f'\\"Secret\\": \\"token-$(wc -l < {tmp_path}/calls)\\"}}"\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {HOST: "counting"}}))
    return tmp_path / "config.json"


def test_keychain_helper_runs_again_for_the_push() -> None:
    keychain = Keychain(image(RegistryInputs(server=HOST)))
    before, then = keychain.for_host(HOST), keychain.for_host(HOST)
    assert (before.username, before.password) == ("AWS", "token-2")
    assert then.password == "token-3"


def test_keychain_with_login_of_program_runs_no_helper(docker_config: Path) -> None:
    keychain = Keychain(image(RegistryInputs(HOST, "me", "mine")))
    assert (keychain.for_host(HOST).username, keychain.for_host(HOST).password) == ("me", "mine")
    assert keychain.for_host(HOST) == keychain.for_host(HOST)
    assert not docker_config.with_name("calls").exists()


def test_keychain_without_push_runs_no_helper(docker_config: Path) -> None:
    assert not Keychain(image(RegistryInputs(server=HOST), skip_push=True)).for_host(HOST).auth_config
    assert not docker_config.with_name("calls").exists()


def test_keychain_missing_helper_is_reported_before_build(docker_config: Path) -> None:
    docker_config.write_text(json.dumps({"credHelpers": {HOST: "missing"}}))
    with pytest.raises(SlipwayError, match=f"credentials for {HOST}: .*docker-credential-missing"):
        Keychain(image(RegistryInputs(server=HOST)))


def test_push_error_of_immutable_tag_advises_no_new_push() -> None:
    """As ECR has it, where another machine has built and pushed the same."""
    message = (
        "tag invalid: The image tag 'a' already exists in the 'x' repository and cannot be overwritten because ..."
    )
    line = _push_error(image_name.parse(f"{HOST}/x:a"), message)
    assert line.startswith(f"error pushing image {HOST}/x:a: tag invalid: ")
    assert line.endswith(f"{HOST} has that tag from another build of the same: use that, or delete it.")
    again = _push_error(image_name.parse(f"{HOST}/x:a"), "unauthorized: no")
    assert again.endswith(f"or run `docker login` for {HOST}. The image is built; the next run pushes it.")


def test_keychain_password_is_for_its_own_registry_alone() -> None:
    keychain = Keychain(image(RegistryInputs(server=HOST, username="me", password="hunter2")))
    assert keychain.for_host(HOST).password == "hunter2"
    for host in ("docker.io", "nvcr.io", f"{HOST}:5000", f"other.{HOST}"):
        assert "hunter2" not in json.dumps(keychain.for_host(host).auth_config)


def test_keychain_renews_a_clouds_token_after_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of hours outlives the token of an hour that the program asked for before it."""
    asked: list[str] = []

    def renewed(login: Login) -> Login:
        asked.append(login.password)
        return Login(login.host, login.username, f"token-{len(asked)}")

    monkeypatch.setattr(stack_login, "renewed", renewed)
    keychain = Keychain(image(RegistryInputs(HOST, "oauth2accesstoken", "token-0", short_lived=True)))
    assert keychain.for_host(HOST).password == "token-0"
    keychain._since -= docker_config_._FRESH + 1
    assert [keychain.for_host(HOST).password for _ in range(2)] == ["token-1"] * 2
    assert asked == ["token-0"]


def test_keychain_never_renews_a_configured_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives a token of another identity pushes as that one, and not as this machine's."""
    monkeypatch.setattr(stack_login, "renewed", lambda login: Login(login.host, login.username, "of this machine"))
    keychain = Keychain(image(RegistryInputs(HOST, "oauth2accesstoken", "given")))
    keychain._since -= docker_config_._FRESH + 1
    assert keychain.for_host(HOST).password == "given"
    given = {"username": "oauth2accesstoken", "password": "token-0"}
    for mark in ({}, {"shortLived": True}):
        assert inputs.image({"build": {}, "registry": {**given, **mark}}).registry.short_lived == bool(mark)


def test_build_lends_the_password_to_its_own_registry_alone() -> None:
    """BuildKit names the host: that of each image in the Dockerfile."""
    one = image(RegistryInputs(server=HOST, username="me", password="hunter2"))
    nobody: Any = None
    work = _Work(one, nobody, Keychain(one), nobody, nobody, {})
    assert work._login(HOST) == ("me", "hunter2")
    for host in ("docker.io", "evil.example", f"{HOST}.evil.example"):
        assert work._login(host) == ("", "")


def test_reference_path_of_255_characters_is_the_longest() -> None:
    assert image_name.parse(f"{HOST}/{'a' * 255}:1").path == "a" * 255
    with pytest.raises(SlipwayError, match="must not be more than 255 characters"):
        image_name.parse(f"{HOST}/{'a' * 256}:1")
