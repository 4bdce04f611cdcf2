"""All parts, in the order in which they need each other."""

from collections.abc import Iterable
from typing import Final

from toolchain import (
    base_image,
    engine,
    environment,
    golang,
    language_host,
    provider_choice,
    pulumi_cli,
    python_env,
    registry,
)
from toolchain.checkout import Checkout
from toolchain.errors import ToolchainError
from toolchain.part import Kind, Part

KINDS: Final[tuple[Kind, ...]] = (
    python_env.KIND, pulumi_cli.KIND, language_host.KIND, provider_choice.KIND, engine.KIND, registry.KIND,
    base_image.KIND,
)  # fmt: skip
"""The parts of the toolchain, each after those it needs."""


def ready(checkout: Checkout) -> list[Part]:
    """Have every part, services running, and `.slipway/env` written. Quick when nothing is missing."""
    parts = [kind.get(checkout) for kind in KINDS]
    golang.clean(checkout)
    environment.save(checkout, parts)
    return parts


def look(checkout: Checkout) -> Iterable[tuple[Kind, Part | None, str]]:
    """Yield each part as it stands, changing nothing: the part or None, and what is wrong where looking failed."""
    for kind in KINDS:
        try:
            yield kind, kind.find(checkout), ""
        except ToolchainError as error:
            yield kind, None, str(error)
