"""The Docker engines that build a stack's images, where its configuration names them.

The provider of a platform has one address, a socket in the checkout, whichever engines there are. So an engine that is
added, that moves or that is gone changes no resource and shows in no preview.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from stacks.config.stack_config import Platform
from stacks.platforms import architecture

FOLDER: Final = ".slipway/engines"
"""The folder of the sockets, relative to the checkout, where the program and the provider run."""


def address(stack: str, platform: str) -> str:
    """Return the address of a platform's engines for the docker provider."""
    return f"unix://{FOLDER}/{stack}-{architecture(platform)}.sock"


def serve(stack: str, engines: Mapping[Platform, Sequence[str]], root: Path) -> None:
    """Forward what arrives at the addresses to the engines of each platform, until the program ends.

    Raises:
        SlipwayError: a socket cannot be made.
    """
    from components.engines.pool import Pool  # noqa: PLC0415 - a preview needs no engine
    from components.engines.router import Router  # noqa: PLC0415 - as above

    router = Router(root)
    for platform, pool in engines.items():
        router.serve(address(stack, platform), Pool(platform, pool))
