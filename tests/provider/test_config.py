"""The provider's configuration: valid values, errors, and changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from tests.provider.plugin import PROVIDER_URN, SELECTED, Failure, Plugin, started
from toolchain.provider.provider_base import UNKNOWN, Secret, decode_struct, encode_struct

LOGIN = [{"address": "r.example", "username": "u", "password": "p"}]
LOGIN_TEXT = '[{"address":"r.example","password":"p","username":"u"}]'


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    """A plugin that has not been configured."""
    with started(tmp_path_factory.mktemp("bare")) as running:
        yield running


@pytest.mark.parametrize(
    ("news", "checked"),
    [
        ({"version": "5.2.0"}, {"version": "5.2.0"}),
        ({"host": "unix:///x", "certPath": "/c"}, {"host": "unix:///x", "certPath": "/c"}),
        ({"host": UNKNOWN}, {"host": UNKNOWN}),
        ({"sshOpts": '["-o","A=b"]'}, {"sshOpts": '["-o","A=b"]'}),
        ({"sshOpts": ["-o", "A=b"]}, {"sshOpts": '["-o","A=b"]'}),
        ({"disableDockerDaemonCheck": True}, {"disableDockerDaemonCheck": "true"}),
        ({"registryAuth": LOGIN}, {"registryAuth": Secret(LOGIN_TEXT)}),
        ({"registryAuth": json.dumps(LOGIN)}, {"registryAuth": Secret(LOGIN_TEXT)}),
        ({"registryAuth": '[{"address":"r.example"}]'}, {"registryAuth": '[{"address":"r.example"}]'}),
    ],
    ids=str,
)
def test_config_valid_is_normalized(bare: Plugin, news: dict[str, Any], checked: dict[str, Any]) -> None:
    request = provider_pb2.CheckRequest(urn=PROVIDER_URN, news=encode_struct(news))
    response = bare.call("CheckConfig", request)
    assert not response.failures
    assert decode_struct(response.inputs) == checked


@pytest.mark.parametrize(
    ("news", "message"),
    [
        ({"hots": "unix:///x"}, "`docker:hots` is not a valid configuration key"),
        ({"registryAuth": '[{"username":"u"}]'}, "address"),
    ],
    ids=str,
)
def test_config_with_wrong_value_is_refused(bare: Plugin, news: dict[str, Any], message: str) -> None:
    request = provider_pb2.CheckRequest(urn=PROVIDER_URN, news=encode_struct(news))
    response = bare.call("CheckConfig", request)
    assert [message in failure.reason for failure in response.failures] == [True]


@pytest.mark.parametrize("news", [{"sshOpts": "-o A=b"}, {"disableDockerDaemonCheck": "maybe"}], ids=str)
def test_config_with_malformed_json_is_refused(bare: Plugin, news: dict[str, Any]) -> None:
    request = provider_pb2.CheckRequest(urn=PROVIDER_URN, news=encode_struct(news))
    with pytest.raises(Failure):
        bare.call("CheckConfig", request)


ADD, DELETE, UPDATE = (getattr(provider_pb2.PropertyDiff, kind) for kind in ("ADD", "DELETE", "UPDATE"))


@pytest.mark.parametrize(
    ("olds", "news", "changed"),
    [
        ({"host": "a"}, {"host": "a"}, {}),
        ({}, {"host": "a"}, {"host": ADD}),
        ({"host": "a"}, {"host": "b"}, {"host": UPDATE}),
        ({"host": "a"}, {}, {"host": DELETE}),
        ({"host": "a"}, {"host": UNKNOWN}, {}),
        ({"registryAuth": Secret(LOGIN_TEXT)}, {"registryAuth": Secret("[]")}, {"registryAuth": UPDATE}),
    ],
    ids=str,
)
def test_config_change_never_replaces_provider(
    bare: Plugin, olds: dict[str, Any], news: dict[str, Any], changed: dict[str, int]
) -> None:
    request = provider_pb2.DiffRequest(
        urn=PROVIDER_URN, olds=encode_struct(olds), old_inputs=encode_struct(olds), news=encode_struct(news)
    )
    response = bare.call("DiffConfig", request)
    assert {key: diff.kind for key, diff in response.detailedDiff.items()} == changed
    assert all(diff.inputDiff for diff in response.detailedDiff.values())
    assert (response.changes == provider_pb2.DiffResponse.DIFF_SOME) == bool(changed)
    assert not response.replaces


def test_configure_with_daemon_succeeds(tmp_path: Path, docker_host: str) -> None:
    with started(tmp_path) as running:
        response = running.configure(host=docker_host)
    assert response.supportsPreview


def test_configure_takes_host_from_environment(tmp_path: Path, docker_host: str) -> None:
    with started(tmp_path, environment={"DOCKER_HOST": docker_host}) as running:
        assert running.configure().supportsPreview


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"host": "unix:///nowhere.sock"}, "failed to connect to any docker daemon"),
        ({"host": "tcp://127.0.0.1:1"}, "failed to connect to any docker daemon"),
        ({"certMaterial": "x"}, "certMaterial, keyMaterial, and caMaterial must all be specified"),
        (
            {"caMaterial": "x", "certMaterial": "x", "keyMaterial": "x", "certPath": "/c"},
            "when using raw certificates, certPath must not be specified",
        ),
    ],
    ids=str,
)
def test_configure_without_daemon_is_refused(tmp_path: Path, variables: dict[str, str], message: str) -> None:
    with started(tmp_path) as running, pytest.raises(Failure, match=message) as failure:
        running.configure(**variables)
    assert "\n" not in str(failure.value)


def test_configure_error_without_daemon_has_advice(tmp_path: Path) -> None:
    with started(tmp_path, "embedded") as running, pytest.raises(Failure) as failure:
        running.configure(host="unix:///nowhere.sock")
    text = str(failure.value)
    assert "unix:///nowhere.sock: No such file or directory" in text
    assert "Start Docker, or set DOCKER_HOST" in text


def test_configure_with_ssh_host_connects_later(tmp_path: Path) -> None:
    with started(tmp_path) as running:
        assert running.configure(host="ssh://nobody@127.0.0.1:1").supportsPreview


def test_configure_without_daemon_check_succeeds(tmp_path: Path) -> None:
    """The official provider reads the setting for its other resources only and asks the daemon all the same."""
    with started(tmp_path) as running:
        if SELECTED == "official":
            with pytest.raises(Failure, match="failed to connect"):
                running.configure(host="unix:///nowhere.sock", disableDockerDaemonCheck="true")
        else:
            running.configure(host="unix:///nowhere.sock", disableDockerDaemonCheck="true")
