"""Synthetic images in a build context: small ones, or ones with incompressible layers."""

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
"""Incompressible layers of a large image. A command writes them, as an installer would."""


def names(count: int) -> list[str]:
    """Return the names of ``count`` images."""
    return [f"image{number}" for number in range(count)]


def write(dockerfiles: Path, count: int, *, layer_bytes: int = 0) -> None:
    """Write the folders of ``count`` images; their layers are large if ``layer_bytes`` is not 0."""
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
    """Change the file below every large image's layers, so that no cache has them."""
    for name in names(count):
        (dockerfiles / name / "seed.txt").write_text(f"{os.urandom(16).hex()}\n")
