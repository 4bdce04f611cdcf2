"""Which versions go together: tables as data, each with its source, and the questions a config asks of them.

The tables are the TOML files beside this module; nothing is read before the first question. Every refusal is an
:class:`Incompatible`, one line that names the field, the value, what is allowed and where the rule comes from.
"""

from stacks.versions.errors import Incompatible, nearest
from stacks.versions.pytorch import (
    Companion,
    Machine,
    TorchRelease,
    check_companion,
    check_python,
    companion_versions,
    final_version,
    torch_release,
    torch_versions,
)

__all__ = [
    "Companion",
    "Incompatible",
    "Machine",
    "TorchRelease",
    "check_companion",
    "check_python",
    "companion_versions",
    "final_version",
    "nearest",
    "torch_release",
    "torch_versions",
]
