"""SLIPWAY_MIRRORS: the user's mirrors, and the mirror that the bootstrapped base image adds to them."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from toolchain.machine.toolchain_error import ToolchainError

VARIABLE: Final = "SLIPWAY_MIRRORS"
REPOSITORY: Final = "docker.io/library/debian"
"""The repository of the base image."""
TAG: Final = "bookworm-slim"
_DIGESTS: Final = "imageDigests"


def base_image_mirror(address: str, digest: str | None = None) -> str:
    """Return the value that sends builds to the base image in the registry on this machine: to this digest."""
    name = f"{address}/{REPOSITORY}"
    stated = {_DIGESTS: {f"{name}:{TAG}": digest}} if digest else {}
    return json.dumps({"images": {REPOSITORY: name}, **stated})


def stated_digest(value: str) -> str | None:
    """Return the digest in a value of :func:`base_image_mirror`; None where it has none."""
    return next(iter(json.loads(value).get(_DIGESTS, {}).values()), None)


def configured(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's mirrors, without :func:`base_image_mirror`, which a sourced `.slipway/env` has.

    Raises ToolchainError where the variable holds no JSON object.
    """
    text = environment.get(VARIABLE) or "{}"
    try:
        mirrors = json.loads(text)
        images, digests = dict(mirrors.pop("images", {})), dict(mirrors.pop(_DIGESTS, {}))
    except (ValueError, TypeError, AttributeError):
        raise ToolchainError(
            f"{VARIABLE}={text}: expected a JSON object such as {base_image_mirror('mirror:5000')}"
        ) from None
    if re.fullmatch(rf"127\.0\.0\.1:\d+/{REPOSITORY}", str(images.get(REPOSITORY))):
        digests.pop(f"{images.pop(REPOSITORY)}:{TAG}", None)
    return {**mirrors, **_filled(images, digests)}


def _filled(images: dict[str, str], digests: dict[str, str]) -> dict[str, Any]:
    return {key: entries for key, entries in (("images", images), (_DIGESTS, digests)) if entries}


def cover(mirrors: Mapping[str, Any], reference: str) -> bool:
    """Return whether a user's mirrors hold an image, written with registry and path."""
    return any(reference.startswith((f"{source}/", f"{source}:")) for source in mirrors.get("images", {}))


def merged(mirrors: Mapping[str, Any], base_image: str) -> dict[str, str]:
    """Return VARIABLE as an environment should have it: the user's mirrors go first. Without any it is left out."""
    added = json.loads(base_image)
    images = {**added.get("images", {}), **mirrors.get("images", {})}
    digests = {**added.get(_DIGESTS, {}), **mirrors.get(_DIGESTS, {})}
    combined = {**added, **mirrors, **_filled(images, digests)}
    return {VARIABLE: json.dumps(combined)} if combined else {}
