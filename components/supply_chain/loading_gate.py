"""The gate of an image's tag: everything in the image loads, but for the stack's exceptions."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Final

from oci import credentials
from oci.binaries import inspection
from oci.binaries.loading import Fault
from oci.registry_image import fetch_each
from stacks.errors import SlipwayError, listing, one_line

_WIDTH: Final = 500
"""Characters of one fault."""


def check(ref: str, login: credentials.Login | None, exceptions: Sequence[Mapping[str, str]]) -> None:
    """Inspect a pushed image, ``repository@sha256:...``, or each image of an index.

    ``exceptions`` are those of ``slipway:inspection``.

    Raises:
        SlipwayError: something in the image does not load, with a line for each fault; or a layer cannot be read.
    """
    every = [fault for image in fetch_each(ref, login) for fault in inspection.inspect(image).faults]
    faults = [fault for fault in dict.fromkeys(every) if not any(_is_excepted(fault, row) for row in exceptions)]
    if faults:
        lines = [one_line(str(fault), _WIDTH) for fault in faults]
        number = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        header = f"{ref}: gets no tag because of {number}; mend the image, or list it in slipway:inspection.exceptions:"
        raise SlipwayError(listing(header, lines, f"; `slipway inspect {ref}` lists them"))


def _is_excepted(fault: Fault, row: Mapping[str, str]) -> bool:
    """Return whether an exception names a fault: its file, and all libraries, symbols or versions that it misses."""
    missing = row["missing"]
    return fnmatch.fnmatchcase(fault.file, row["files"]) and (
        missing == "*" or (bool(fault.names) and all(fnmatch.fnmatchcase(name, missing) for name in fault.names))
    )
