"""The wheels that a stack built, out of the images that hold them."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cli.export.filesystem import Filesystem
from cli.export.output import copy
from oci.registry_image import Image
from stacks.errors import SlipwayError

_FOLDERS: Final = {"dist", "tmp/dist"}
"""Where images keep wheels, relative to their root."""


def write(images: Sequence[Image], output: Path) -> list[str]:
    """Write the wheels of some images to a new folder; return their names. Layers are kept beside it meanwhile.

    Raises:
        SlipwayError: no image has one, or a registry does not give a layer.
        Unwritten: a wheel cannot be written.
    """
    output.mkdir()
    for number, image in enumerate(images):
        for found in Filesystem(image, output.with_name(f"layers-{number}")).files(_wheel):
            with (output / posixpath.basename(found.paths[0])).open("wb") as file:
                copy(found.content, file)
    names = sorted(path.name for path in output.iterdir())
    if not names:
        raise SlipwayError(f"no wheel is in /dist or /tmp/dist of {', '.join(image.reference for image in images)}")
    return names


def only_wheels(folder: Path) -> bool:
    """Say whether a folder holds nothing but wheels, so that another export may replace it."""
    return folder.is_dir() and all(path.suffix == ".whl" and path.is_file() for path in folder.iterdir())


def _wheel(path: str) -> bool:
    return path.endswith(".whl") and posixpath.dirname(path) in _FOLDERS
