"""GPUs by name, and the drivers that CUDA needs at least."""

from __future__ import annotations

import re

from stacks.versions.incompatible import row
from stacks.versions.tables import table

_SOURCE = "NVIDIA's list of CUDA GPUs, stacks/versions/gpus.toml"


def capability(name: str) -> str:
    """Return the compute capability of a GPU, ``9.0`` of ``H100``; a capability, or ``sm_90``, stands for itself.

    Raises:
        Incompatible: no such GPU is in the table.
    """
    if match := re.fullmatch(r"(?:sm_)?(\d+)\.?(\d)", name):
        return f"{match[1]}.{match[2]}"
    names = {known.lower(): value for known, value in table("gpus")["gpu"].items()}
    if name.lower() in names:
        return str(names[name.lower()])
    return str(row(table("gpus")["gpu"], name, "--gpu", "is no known GPU; a compute capability works too", _SOURCE))


def least_driver(major: str) -> str | None:
    """Return the oldest driver that programs of a major version of CUDA run with; None for an unknown one."""
    return table("gpus")["driver"].get(major)
