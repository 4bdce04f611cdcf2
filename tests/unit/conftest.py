"""What holds for every test of one module."""

import pytest


@pytest.fixture(autouse=True)
def _no_defaults_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry and the mirrors are those that a test gives, whatever `make` has set for the stacks."""
    for name in ("SLIPWAY_REGISTRY", "SLIPWAY_MIRRORS"):
        monkeypatch.delenv(name, raising=False)
