"""The NumPy that a file is built for, by the errors of NumPy's `import_array` in its data.

Source: numpy/numpy v1.26.4 and v2.4.6, generate_numpy_api.py. A file that is built with NumPy 1 refuses NumPy 2; one
built with NumPy 2 names the oldest release that it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

NEEDED: Final = b"PyCapsule_GetPointer\0"
"""A function of Python that each caller of NumPy's C API needs."""
_BEFORE_2: Final = b"module compiled against API version 0x%x but this version of numpy is 0x%x"
_FROM_2: Final = re.compile(rb"module was compiled against NumPy C-API version 0x%x \(NumPy (\d{1,4}\.\d{1,4})\)")
_BY_CYTHON: Final = b"numpy.core.multiarray failed to import"
"""In what Cython makes by the declarations of NumPy 1, which then mostly has its larger structures too."""


class NumpyBuild(NamedTuple):
    """The releases of NumPy that a file is built for, as a specifier, and whether it surely refuses others."""

    releases: str
    refuses: bool


def build(parts: Iterable[bytes]) -> NumpyBuild | None:
    """Return what a file's data says of NumPy; None if it does not call it."""
    specifiers: set[str] = set()
    by_cython = False
    for data in parts:
        specifiers.update(f">={match[1].decode()}" for match in _FROM_2.finditer(data))
        specifiers.update({"<2"} if _BEFORE_2 in data else ())
        by_cython = by_cython or _BY_CYTHON in data
    if specifiers:
        return NumpyBuild(",".join(sorted(specifiers)), refuses=True)
    return NumpyBuild("<2", refuses=False) if by_cython else None
