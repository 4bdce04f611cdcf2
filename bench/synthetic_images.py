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
COPY {name}/seed.txt /seed.txt
{layers}
RUN sha256sum /layer* > /sums && echo "${{NUMBER}}" > /number
COPY {name}/file.txt /file.txt
"""
LAYERS: Final = 3
"""How many layers of incompressible bytes a large image has. A command makes them, as an installer would."""


def names(count: int) -> list[str]:
    """Return the names of so many images."""
    return [f"image{number}" for number in range(count)]


def write(dockerfiles: Path, count: int, *, layer_bytes: int = 0) -> None:
    """Write the folders of so many images into a build context: with large layers of that size each, or without."""
    layers = "\n".join(f"RUN head -c {layer_bytes} /dev/urandom > /layer{number}" for number in range(LAYERS))
    for name in names(count):
        folder = dockerfiles / name
        folder.mkdir()
        (folder / "Dockerfile").write_text((_LARGE if layer_bytes else _SMALL).format(name=name, layers=layers))
        (folder / "Dockerfile.dockerignore").write_text(f"*\n!{name}\n{name}/README.md\n")
        (folder / "file.txt").write_text(f"{name}\n")
    if layer_bytes:
        reseed(dockerfiles, count)


def reseed(dockerfiles: Path, count: int) -> None:
    """Change the file that every large image's layers stand on: no cache has what is built then."""
    for name in names(count):
        (dockerfiles / name / "seed.txt").write_text(f"{os.urandom(16).hex()}\n")
