"""What attacks by another user share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, so that only the modes of `.slipway` keep a stranger out.

    Those of pytest are closed, and each pytest that starts closes them again.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
