"""Fixtures of the tests that make git histories."""

from tests.unit.conftest import _no_network  # noqa: F401 - a fixture of every test here
