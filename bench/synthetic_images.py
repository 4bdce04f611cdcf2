"""Synthetic images in a build context: small ones, ones with incompressible layers, and ones that take CPU time."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
_WORKING: Final = """ARG BASE_IMAGE
ARG PRODUCT_IMAGE=""
FROM ${{BASE_IMAGE}} AS worked
ARG NUMBER
COPY {name}/seed.txt {name}/rounds.txt /srv/
RUN rounds=$(sed -n "s/^$(dpkg --print-architecture) //p" /srv/rounds.txt) && \\
    for round in $(seq "$rounds"); do {work}; done > /result
FROM scratch AS built
COPY --from=worked /result /
FROM ${{PRODUCT_IMAGE:-built}} AS product
"""
WORK: Final = "tar -C / -c usr/bin | head -c 4000000 | gzip | sha256sum"
"""A round of work: archive, compress and hash programs of the parent, which keeps one core busy and no disk."""
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


def write_working(dockerfiles: Path, count: int, rounds: Mapping[str, int]) -> None:
    """Write the folders of ``count`` images whose builds do :data:`WORK`; ``rounds`` is by Debian's architecture.

    Each can be a build product too.
    """
    lines = "".join(f"{architecture} {number}\n" for architecture, number in rounds.items())
    for name in names(count):
        folder = dockerfiles / name
        folder.mkdir()
        (folder / "Dockerfile").write_text(_WORKING.format(name=name, work=WORK))
        (folder / "Dockerfile.dockerignore").write_text(f"*\n!{name}\n{name}/README.md\n")
        (folder / "rounds.txt").write_text(lines)
    reseed(dockerfiles, count)


def reseed(dockerfiles: Path, count: int) -> None:
    """Change the file below what every large or working image's build makes, so that no cache has it."""
    for name in names(count):
        (dockerfiles / name / "seed.txt").write_text(f"{os.urandom(16).hex()}\n")
