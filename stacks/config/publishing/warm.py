"""``slipway:warm``: the script whose caches become a layer of an image."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ByteSize, Field

from stacks.config.additions import repository_path
from stacks.config.model import Model
from stacks.config.values import Size

_LARGEST = 16 << 30
"""Bytes of caches: they are in memory while the script runs."""


def _within(size: ByteSize) -> ByteSize:
    if not 1 << 20 <= size <= _LARGEST:
        raise ValueError("expected 1 MiB to 16 GiB")
    return size


class WarmConfig(Model):
    """The script that `slipway warm` runs in a published image, and its limits."""

    script: Annotated[str, AfterValidator(repository_path)] = Field(
        description="A file of the repository. `*.py` is run by the image's python3, another by its first line `#!`."
    )
    seconds: int = Field(1800, ge=1, le=86_400, description="Seconds that the script may take.")
    size: Annotated[Size, AfterValidator(_within)] = Field(
        ByteSize(2_000_000_000),
        validate_default=False,
        description="Largest size of all its caches, such as 500 MB. While it runs, they are in memory.",
    )
