"""A changed input updates the image or does nothing. It never replaces the image."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from tests.provider.plugin import Plugin
from toolchain.provider.provider_base import UNKNOWN, Secret

ADD, DELETE, UPDATE = (getattr(provider_pb2.PropertyDiff, kind) for kind in ("ADD", "DELETE", "UPDATE"))
LOGIN = {"server": "r.example", "username": "u", "password": "p"}
BUILD = {"context": "app", "args": {"A": "1"}, "contextDigest": "d1"}
INPUTS = {
    "imageName": "r.example/app:v1",
    "build": BUILD,
    "skipPush": False,
    "registry": LOGIN,
}


def changed(**news: Any) -> dict[str, Any]:
    return {key: value for key, value in {**INPUTS, **news}.items() if value is not None}


CASES = [
    ("nothing", INPUTS, {}),
    ("name", changed(imageName="r.example/app:v2"), {"imageName": UPDATE}),
    ("context", changed(build={**BUILD, "contextDigest": "d2"}), {"build": UPDATE}),
    ("argument", changed(build={**BUILD, "args": {"A": "2"}}), {"build": UPDATE}),
    ("new argument", changed(build={**BUILD, "args": {"A": "1", "B": "2"}}), {"build": UPDATE}),
    ("unknown argument", changed(build={**BUILD, "args": {"A": UNKNOWN}}), {"build": UPDATE}),
    ("secret argument of the same value", changed(build={**BUILD, "args": {"A": Secret("1")}}), {}),
    ("unknown build", changed(build=UNKNOWN), {"build": UPDATE}),
    ("no push", changed(skipPush=True), {"skipPush": UPDATE}),
    ("user and password", changed(registry={**LOGIN, "username": "x", "password": Secret("y")}), {}),
    ("no password", changed(registry={"server": "r.example", "username": "u"}), {}),
    ("server", changed(registry={**LOGIN, "server": "other"}), {"registry": UPDATE}),
    ("no server", changed(registry={"username": "u", "password": "p"}), {}),
    ("registry taken away", changed(registry=None), {"registry": DELETE}),
    ("unknown registry", changed(registry=UNKNOWN), {"registry": UPDATE}),
    ("something new", changed(buildOnPreview=True), {"buildOnPreview": ADD}),
    ("two things", changed(buildOnPreview=True, skipPush=None), {"buildOnPreview": ADD, "skipPush": DELETE}),
    ("true is not one", changed(skipPush=0), {"skipPush": UPDATE}),
]


@pytest.mark.parametrize(("news", "kinds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("secret", [True, False], ids=["secret state", "plain state"])
def test_diff_lists_changed_inputs_only(
    plugin: Plugin, news: dict[str, Any], kinds: dict[str, int], secret: bool
) -> None:
    state = {"imageName": "r.example/app:v1", "__inputs": Secret(INPUTS) if secret else INPUTS}
    response = plugin.diff(state, news)
    assert {key: (diff.kind, diff.inputDiff) for key, diff in response.detailedDiff.items()} == {
        key: (kind, False) for key, kind in kinds.items()
    }
    some, none = provider_pb2.DiffResponse.DIFF_SOME, provider_pb2.DiffResponse.DIFF_NONE
    assert response.changes == (some if kinds else none)
    assert response.hasDetailedDiff == bool(kinds)
    assert not response.replaces
    assert not response.deleteBeforeReplace


def test_diff_of_state_without_inputs_has_all_keys(plugin: Plugin) -> None:
    """A state without the inputs that made it differs in everything."""
    assert set(plugin.diff({"imageName": "r.example/app:v1"}, INPUTS).detailedDiff) == set(INPUTS)
