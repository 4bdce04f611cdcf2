"""The embedded provider's configuration: which of its sources counts."""

from __future__ import annotations

import pytest

from tests.helpers.every import every
from toolchain.provider import provider_config


@every(
    "variables, host",
    [({"docker:config:host": "tcp://configured"}, "tcp://configured"), ({}, "tcp://environment")],
)
def test_settings_prefer_configuration_to_environment(
    variables: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://environment")
    assert provider_config.settings(variables)["host"] == host
