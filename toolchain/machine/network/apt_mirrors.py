"""SLIPWAY_MIRRORS: what the user says of mirrors, and below it the bootstrapped base image's own."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from toolchain.machine.toolchain_error import ToolchainError

VARIABLE: Final = "SLIPWAY_MIRRORS"
REPOSITORY: Final = "docker.io/library/debian"
"""The repository of the base image."""


def ours(address: str) -> str:
    """Return the value that sends builds to the base image in the registry on this machine."""
    return json.dumps({"images": {REPOSITORY: f"{address}/{REPOSITORY}"}})


def users(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the user says; an entry of `ours` is from a sourced `.slipway/env`. Raises ToolchainError."""
    text = environment.get(VARIABLE) or "{}"
    try:
        said = json.loads(text)
        images = dict(said.pop("images", {}))
    except (ValueError, TypeError, AttributeError):
        raise ToolchainError(f"{VARIABLE}={text}: expected a JSON object such as {ours('mirror:5000')}") from None
    if re.fullmatch(rf"127\.0\.0\.1:\d+/{REPOSITORY}", str(images.get(REPOSITORY))):
        del images[REPOSITORY]
    return {**said, **({"images": images} if images else {})}


def cover(said: Mapping[str, Any], reference: str) -> bool:
    """Tell whether a user's mirrors hold an image, written with registry and path."""
    return any(reference.startswith((f"{source}/", f"{source}:")) for source in said.get("images", {}))


def merged(said: Mapping[str, Any], below: str) -> dict[str, str]:
    """Return VARIABLE as an environment should have it, without it where there is nothing to say."""
    own = json.loads(below)
    images = {**own.get("images", {}), **said.get("images", {})}
    both = {**own, **said, **({"images": images} if images else {})}
    return {VARIABLE: json.dumps(both)} if both else {}
