"""Fixtures of the tests that make git histories."""

import pytest

from stacks.identity import history
from tests.unit.conftest import _no_network  # noqa: F401 - a fixture of every test here


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_TYPE", "GITHUB_REF_NAME", history.BRANCH_VARIABLE):
        monkeypatch.delenv(name, raising=False)
