"""Fixtures of the tests that make git histories."""

from tests.unit.conftest import _no_defaults_of_the_environment  # noqa: F401 - a fixture of every test here
