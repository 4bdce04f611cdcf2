"""Reports that our checks wrote on a machine with two H100 on 2026-11-25 (torch 2.11.0, driver 580.159.04).

``good``: torch's checks. ``planted``: the same with NCCL_P2P_DISABLE=1; ``planted-shm``: with NCCL_SHM_DISABLE=1 too.
``efa``: EFA's checks on such a machine, which has no EFA; its image and node are written in. All name the image ``push(..., "good")`` of
:mod:`tests.helpers.pushed_image`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIGEST = "sha256:2a7ca9497eb7d7143e5ec16b2c9830c86e183b89c237b9c79b5357829ff83594"
"""The image that they name."""


def path(name: str) -> Path:
    """Return the file of a report."""
    return Path(__file__).with_name(f"{name}.json")


def text(name: str, **changes: Any) -> str:
    """Return a report as the checks wrote it, or with other values."""
    return json.dumps({**json.loads(path(name).read_text()), **changes})
