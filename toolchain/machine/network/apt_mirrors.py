"""SLIPWAY_MIRRORS: the user's mirrors, and the mirror that the bootstrapped base image adds to them."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from toolchain.machine.toolchain_error import ToolchainError

VARIABLE: Final = "SLIPWAY_MIRRORS"
REPOSITORY: Final = "docker.io/library/debian"
"""The repository of the base image."""


def base_image_mirror(address: str) -> str:
    """Return the value that sends builds to the base image in the registry on this machine."""
    return json.dumps({"images": {REPOSITORY: f"{address}/{REPOSITORY}"}})


def configured(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's mirrors, without :func:`base_image_mirror`, which a sourced `.slipway/env` has.

    Raises ToolchainError where the variable holds no JSON object.
    """
    text = environment.get(VARIABLE) or "{}"
    try:
        mirrors = json.loads(text)
        images = dict(mirrors.pop("images", {}))
    except (ValueError, TypeError, AttributeError):
        raise ToolchainError(
            f"{VARIABLE}={text}: expected a JSON object such as {base_image_mirror('mirror:5000')}"
        ) from None
    if re.fullmatch(rf"127\.0\.0\.1:\d+/{REPOSITORY}", str(images.get(REPOSITORY))):
        del images[REPOSITORY]
    return {**mirrors, **({"images": images} if images else {})}


def cover(mirrors: Mapping[str, Any], reference: str) -> bool:
    """Return whether a user's mirrors hold an image, written with registry and path."""
    return any(reference.startswith((f"{source}/", f"{source}:")) for source in mirrors.get("images", {}))


def merged(mirrors: Mapping[str, Any], base_image: str) -> dict[str, str]:
    """Return VARIABLE as an environment should have it: the user's mirrors go first. Without any it is left out."""
    added = json.loads(base_image)
    images = {**added.get("images", {}), **mirrors.get("images", {})}
    combined = {**added, **mirrors, **({"images": images} if images else {})}
    return {VARIABLE: json.dumps(combined)} if combined else {}
