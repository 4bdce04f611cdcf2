"""The push of an image from its engine, with layers that are compressed here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from components.reached_engine import address
from containers.engine import zstd_push
from containers.engine.engine import Engine, EngineError, json_header
from containers.engine.image_files import EngineImage
from containers.engine.pushed_layers import FOLDER
from containers.errors import SlipwayError
from containers.registry import credentials
from containers.registry.reference import Reference
from stacks.config.stack_file import ROOT

_NEXT: Final = "The image is built; the next run pushes it"
_LOST: Final = (
    "The engine has lost it since its build. To build it again: `pulumi stack --show-urns` has the URN of its "
    "docker.Image; then `pulumi state taint 'URN'`, and an update"
)
"""The state has the image, so that no update builds it: as when each run of CI has an engine of its own."""


def push(image: Mapping[str, Any], login: credentials.Login | None) -> str:
    """Push an image and return ``repository@sha256:...``; ``image`` is the inputs of a ``CompressedPush``.

    Raises SlipwayError: the engine does not give the image, or the registry does not take it.
    """
    name = Reference.of(image["ref"])
    try:
        known = login or credentials.of_machine(name.host)
        engine = Engine.at(address(image))
        held = EngineImage.held(image["built"], engine)
        level = int(image["level"])  # Pulumi passes numbers as floats
        digest, config, _ = zstd_push.push(held, str(name), level, known, ROOT / FOLDER, lambda _: None)
    except (SlipwayError, ValueError) as error:
        lost = isinstance(error, EngineError) and error.status == HTTPStatus.NOT_FOUND
        raise SlipwayError(f"error pushing image {name}: {error}. {_LOST if lost else _NEXT}.") from None
    if config == held.identity:
        _tell(engine, name, digest, known)
    return f"{name.repository}@{digest}"


def _tell(engine: Engine, name: Reference, digest: str, login: credentials.Login | None) -> None:
    """Have the engine know the pushed image by its digest: it has all of it but the manifest.

    What is built on the image finds it there. An engine that does not take it pulls the image when it has to.
    """
    headers = {"X-Registry-Auth": json_header((login or credentials.Login(name.host, "", "")).auth_config)}
    query = {"fromImage": name.repository, "tag": digest}
    with suppress(SlipwayError), engine.request("POST", "/images/create", query=query, headers=headers) as response:
        for _ in response.messages():  # it is done when all of them are read
            pass
