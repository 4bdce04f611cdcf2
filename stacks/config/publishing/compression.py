"""``slipway:compression``: how the layers of images that are run are compressed when they are pushed."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from stacks.config.model import Model

_HIGHEST: Final = 19
"""Higher levels need a window of more than 8 MB, which a decoder may refuse (RFC 8878, 3.1.1.1.2)."""


class GzipConfig(Model):
    """The Docker engine compresses layers as it pushes them. All engines can pull them."""

    kind: Literal["gzip"] = Field(description="The engine's own compression, on one core. Any engine can pull it.")


class ZstdConfig(Model):
    """Layers are compressed on all cores of this machine, with zstd. Docker 23.0 and newer can pull them."""

    kind: Literal["zstd"] = Field(description="Compression on all cores. Docker 23.0 and newer can pull it.")
    level: int = Field(
        4,
        ge=1,
        le=_HIGHEST,
        description="Level of zstd. A higher one takes longer and makes smaller layers; pulls take as long with each.",
    )


Compression = Annotated[GzipConfig | ZstdConfig, Field(discriminator="kind")]
"""What ``compression`` may be."""
