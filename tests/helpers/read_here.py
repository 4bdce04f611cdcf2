"""Images that a gate reads in the process of the test: another one is 0.3 s of the processor until it has its imports."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from containers.budget import limited


def _here(subject: str, function: Callable[..., Any], *arguments: Any) -> Any:
    with limited(subject):
        return function(*arguments)


def read_here(gate: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Have a module that calls :func:`containers.budget.apart` call the function within the same limits, but here."""
    patch.setattr(gate, "apart", _here)
