"""The images that are built: folders of a build context, small ones or ones with layers that do not compress."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SMALL: Final = """ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
ARG NUMBER
COPY {name}/file.txt /file-${{NUMBER}}.txt
"""
_LARGE: Final = """ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
ARG NUMBER
{layers}
RUN sha256sum /layer* > /sums && echo "${{NUMBER}}" > /number
COPY {name}/file.txt /file.txt
"""
LAYERS: Final = 3
"""How many layers of incompressible bytes a large image has."""


def names(count: int) -> list[str]:
    """Return the names of so many images."""
    return [f"image{number}" for number in range(count)]


def write(dockerfiles: Path, count: int, *, large: bool = False) -> None:
    """Write the folders of so many images into a build context."""
    for name in names(count):
        folder = dockerfiles / name
        folder.mkdir()
        layers = "\n".join(f"COPY {name}/layer{number} /" for number in range(LAYERS))
        (folder / "Dockerfile").write_text((_LARGE if large else _SMALL).format(name=name, layers=layers))
        (folder / "Dockerfile.dockerignore").write_text(f"*\n!{name}\n{name}/README.md\n")
        (folder / "file.txt").write_text(f"{name}\n")


def fill(dockerfiles: Path, count: int, size: int) -> None:
    """Give every large image layers of new random bytes, ``size`` each, which no cache has seen."""
    for name in names(count):
        for number in range(LAYERS):
            (dockerfiles / name / f"layer{number}").write_bytes(os.urandom(size))
