"""What every test needs that runs the real Pulumi: a state of its own, and output without terminal codes."""

from __future__ import annotations

import os
import re
from pathlib import Path


def environment(state: Path, **more: str) -> dict[str, str]:
    """Return this environment with the state in a folder, under a passphrase of the tests' own."""
    own = {**os.environ, "PULUMI_BACKEND_URL": state.as_uri(), "PULUMI_CONFIG_PASSPHRASE": "test", **more}
    own.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
    return own


def plain(shown: str) -> str:
    """Return what was shown without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)
