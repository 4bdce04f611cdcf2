"""Distributions: which are built on, and the Pythons that each offers."""

from __future__ import annotations

from stacks.versions.errors import Incompatible
from stacks.versions.tables import table

_ARCHIVES = "the distribution's own archive, stacks/versions/distros.toml"


def distros() -> tuple[str, ...]:
    """Return every distribution in the table, such as ``ubuntu20.04``, oldest first."""
    return tuple(table("distros"))


def distro_python(distro: str, python: str | None = None, *, field: str = "python") -> str:
    """Return the Python of an image: ``python`` if the distribution offers it, else the distribution's own.

    Raises:
        Incompatible: the distribution is not in the table, or has no such Python.
    """
    if distro not in distros():
        why = "is not a distribution that images are built on (they need apt)"
        raise Incompatible("distro", distro, why, distros(), "stacks/versions/distros.toml", known=False)
    offered: tuple[str, ...] = tuple(table("distros")[distro]["python"])
    if python is None:
        return offered[0]
    if python not in offered:
        raise Incompatible(field, python, f"is not a Python of {distro}", offered, _ARCHIVES)
    return python
