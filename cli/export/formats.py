"""The formats of exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.export import layout, squashfs, wheels
from cli.export.output import check_space, replacing
from containers.budget import limited
from containers.image.registry_image import Image


@dataclass(frozen=True)
class Format:
    """A format: its writer, its disk space as a multiple of the image's compressed size, and a check before the start.

    ``replaceable`` recognizes an earlier export, which ``--force`` may replace.
    """

    write: Callable[[Image, Path], None]
    copies: int = 1
    replaceable: Callable[[Path], bool] = Path.is_file
    check: Callable[[], None] = lambda: None


FORMATS: Final[Mapping[str, Format]] = {
    "tar": Format(layout.archive),
    "oci": Format(layout.folder, replaceable=lambda path: (path / "oci-layout").is_file()),
    "sqsh": Format(squashfs.write, copies=2, check=squashfs.check),
}
"""An archive for ``docker load``, an OCI layout, and a squashfs for enroot."""


def export(image: Image, format_: Format, output: Path, *, force: bool) -> None:
    """Write an image to ``output``; ``force`` replaces an earlier export.

    Raises SlipwayError: the output exists, cannot be written or has too little space, or the download fails.
    """
    with limited(image.reference), replacing(output, force=force, replaceable=format_.replaceable) as path:
        check_space(output, format_.copies * image.size)
        format_.write(image, path)


def export_wheels(images: list[Image], output: Path, *, force: bool) -> list[str]:
    """Write the wheels in some images to the folder ``output``; return their names.

    Raises SlipwayError: as for :func:`export`, or there is no wheel.
    """
    subject = " and ".join(image.reference for image in images)
    with limited(subject, len(images)), replacing(output, force=force, replaceable=wheels.only_wheels) as path:
        check_space(output, 2 * sum(image.size for image in images))
        return wheels.write(images, path)
