"""Unit tests start no Python directly, and are told where one that must belongs."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_python_that_a_unit_test_starts_fails_it() -> None:
    with pytest.raises(pytest.fail.Exception, match="of tests/programs"):
        subprocess.run([sys.executable, "-c", ""], check=False)
