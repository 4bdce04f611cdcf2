"""The wheels of a stack, from the images that contain them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cli.export.filesystem import Filesystem
from cli.export.output import copy
from containers.errors import SlipwayError
from containers.image.registry_image import Image

_FOLDERS: Final = {"dist", "tmp/dist"}
"""The folders with wheels, relative to an image's root."""


_WHEEL: Final = re.compile(r"[\w.+!-]{1,200}\.whl", re.ASCII)
"""Names of wheels (PyPA, binary distribution format). Another is no wheel, and may hold what a terminal obeys."""


def write(images: Sequence[Image], output: Path) -> list[str]:
    """Write the wheels of some images to a new folder, and return their names.

    Raises:
        SlipwayError: no image has a wheel, or a download fails.
        WriteFailed: a wheel cannot be written.
    """
    output.mkdir()
    for number, image in enumerate(images):
        for wheel in Filesystem(image, output.with_name(f"layers-{number}")).files(_is_wheel):
            with (output / posixpath.basename(wheel.paths[0])).open("wb") as file:
                copy(wheel.content, file)
    names = sorted(path.name for path in output.iterdir())
    if not names:
        raise SlipwayError(f"no wheel in /dist or /tmp/dist of {', '.join(image.reference for image in images)}")
    return names


def only_wheels(folder: Path) -> bool:
    """Return whether a folder contains only wheels, so that another export may replace it."""
    return folder.is_dir() and all(path.suffix == ".whl" and path.is_file() for path in folder.iterdir())


def _is_wheel(path: str) -> bool:
    return posixpath.dirname(path) in _FOLDERS and bool(_WHEEL.fullmatch(posixpath.basename(path)))
