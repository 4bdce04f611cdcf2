"""The forms in which an image is exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.export import layout, squashfs, wheels
from cli.export.output import beside, check_space
from oci.registry_image import Image


@dataclass(frozen=True)
class Format:
    """How an image is written, what its output looks like where one is there already, and what must be there first.

    ``copies`` is how much disk it takes beside the image's compressed size, as a multiple of that.
    """

    write: Callable[[Image, Path], None]
    copies: int = 1
    ours: Callable[[Path], bool] = Path.is_file
    check: Callable[[], None] = lambda: None


FORMATS: Final[Mapping[str, Format]] = {
    "tar": Format(layout.archive),
    "oci": Format(layout.folder, ours=lambda path: (path / "oci-layout").is_file()),
    "sqsh": Format(squashfs.write, copies=2, check=squashfs.check),
}
"""An archive for ``docker load``, an OCI layout, and a squashfs for enroot."""


def export(image: Image, form: Format, output: Path, *, force: bool) -> None:
    """Write an image to ``output``, which is replaced with ``force`` only.

    Raises:
        SlipwayError: the output is there already, cannot be written or has too little space, or the registry does not
            give the image.
    """
    with beside(output, force=force, ours=form.ours) as place:
        check_space(output, form.copies * image.size)
        form.write(image, place)


def export_wheels(images: list[Image], output: Path, *, force: bool) -> list[str]:
    """Write the wheels that some images hold to the folder ``output``; return their names.

    Raises:
        SlipwayError: as :func:`export` says, or there is no wheel.
    """
    with beside(output, force=force, ours=wheels.only_wheels) as place:
        check_space(output, 2 * sum(image.size for image in images))
        return wheels.write(images, place)
