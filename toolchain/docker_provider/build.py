"""Making an image: build it, push it, and say which digest came out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolchain.docker_provider import progress, reference, tarball
from toolchain.docker_provider.context import ignore_patterns, matcher, resolve_links
from toolchain.docker_provider.credentials import Keychain
from toolchain.docker_provider.engine import Engine, EngineError
from toolchain.docker_provider.inputs import BUILDERS, Image
from toolchain.docker_provider.session import Session
from toolchain.provider_base import Operation, Properties, ProviderError

_STORE_SECONDS: Final = 5
"""How long a built image may take to show up in the engine's store."""

_ADVICE: Final = (
    (
        r"unauthorized|denied|no basic auth|authentication|incorrect username|forbidden|\b401\b|\b403\b",
        "check registry.username and registry.password, or run `docker login` for {registry}",
    ),
    (r"no space left|disk quota", "free space where the registry {registry} (or the Docker daemon) keeps its data"),
    (
        r"server gave HTTP response to HTTPS client",
        "list {registry} under insecure-registries of the Docker daemon, or serve it over TLS",
    ),
    (
        r"connection refused|no such host|timeout|\bEOF\b|connection reset|unreachable|misbehaving|broke|\b50[0-9]\b",
        "see that the registry {registry} is up and has disk space, and that the Docker daemon can reach it",
    ),
)
"""What a failed push says to what can be done about it; the first that fits counts."""


@dataclass(frozen=True)
class Display:
    """Where to write beside the resource.

    Attributes:
        status: takes a passing line, which the next one replaces.
        log: takes a line to keep, and its severity.
    """

    status: Callable[[str], None]
    log: Callable[[str, str], None]


@dataclass(frozen=True)
class Source:
    """The context of a build, ready to be sent.

    Attributes:
        root: the context, absolute and resolved.
        dockerfile: the Dockerfile's path relative to it; begins with `../` where it lies outside.
        patterns: ignore patterns.
    """

    root: str
    dockerfile: str
    patterns: list[str]


def source(image: Image) -> Source:
    """Find the context and the Dockerfile of an image.

    Raises:
        ProviderError: if one of them is not there.
    """
    try:
        root = resolve_links(os.path.abspath(image.build.context))  # noqa: PTH100 - no link is followed before ".."
        if not Path(root).is_dir():
            raise ProviderError(f"error resolving context: context must be a directory: {root}")
        dockerfile = resolve_links(os.path.abspath(image.build.dockerfile))  # noqa: PTH100
    except OSError as error:
        raise ProviderError(f"error resolving context: {error.filename}: {error.strerror}") from error
    return Source(root, os.path.relpath(dockerfile, root), ignore_patterns(image.build.context, image.build.dockerfile))


def produce(image: Image, engine: Engine, display: Display, operation: Operation, *, push: bool) -> Properties:
    """Build an image and, unless told otherwise, push it.

    Args:
        image: what to make.
        engine: where to build.
        display: takes what happens meanwhile.
        operation: ends it from another thread.
        push: False keeps the image in the engine.

    Returns:
        The resource's outputs.

    Raises:
        ProviderError: if the build or the push fails; after a failed push the built image stays in the engine.
    """
    what = source(image)
    name = reference.parse(image.name)
    keychain = Keychain(image)
    if keychain.warning and (push or image.build.cache_from):
        display.log(keychain.warning, "WARNING")
    for cached in image.build.cache_from:
        _pull(cached, image, engine, keychain, display, operation)
    image_id = _build(what, image, engine, keychain, display, operation)
    _await(image_id, engine, operation)
    if push:
        digest = _push(name, image_id, engine, keychain, display, operation)
    else:
        digest = engine.json(f"/images/{image.name}/json")["Id"]
    return {
        "baseImageName": image.name,
        "context": image.build.context,
        "dockerfile": what.dockerfile,
        "imageName": image.name,
        "platform": image.build.platform,
        "registryServer": image.registry.server,
        "repoDigest": digest,
    }


def _build(
    what: Source, image: Image, engine: Engine, keychain: Keychain, display: Display, operation: Operation
) -> str:
    build = image.build
    name, extra = _build_files(what, build.builder)
    patterns = _admitting(
        what.patterns, [name, *extra, *([".dockerignore"] if build.builder == BUILDERS["BuilderV1"] else [])]
    )
    query: dict[str, str | list[str]] = {"t": image.name, "dockerfile": name, "version": build.builder}
    optional: dict[str, Any] = {
        "buildargs": json.dumps(build.args) if build.args else "",
        "cachefrom": json.dumps(build.cache_from) if build.cache_from else "",
        "extrahosts": build.add_hosts,
        "networkmode": "" if build.network == "default" else build.network,
        "platform": build.platform.lower(),
        "target": build.target,
    }
    query |= {key: value for key, value in optional.items() if value}
    headers = {"Content-Type": "application/x-tar"}
    log = progress.BuildLog(display.status)
    sent = 0

    def count(size: int) -> None:
        nonlocal sent
        sent += size
        display.status(f"Sending the build context: {progress.size(sent)}")

    display.status("Starting Docker build")
    with ExitStack() as stack:
        if build.builder == BUILDERS["BuilderBuildKit"]:

            def answer(host: str) -> tuple[str, str]:
                credential = keychain.for_host(host)
                return credential.username, credential.identity_token or credential.password

            query["session"] = stack.enter_context(Session(engine, answer)).id
        else:
            headers["X-Registry-Config"] = keychain.everything()
        try:
            response = stack.enter_context(
                engine.request(
                    "POST",
                    "/build",
                    query=query,
                    headers=headers,
                    body=lambda writer: tarball.write(writer, what.root, patterns, extra),
                    sent=count,
                    operation=operation,
                )
            )
            log.follow(response.messages())
        except (EngineError, progress.StreamError) as error:
            raise ProviderError(f"error building image {image.name}: {error}") from error
    operation.check()
    if not log.image_id:
        raise ProviderError(f"error building image {image.name}: no image id found in build output")
    display.status(f"Built image with id {log.image_id}")
    return log.image_id


def _build_files(what: Source, builder: str) -> tuple[str, dict[str, bytes]]:
    """Return the Dockerfile's name within the stream, and the files to add to it.

    A Dockerfile from outside the context is added under a name of its own that only changes with it. The first builder
    removes what `.dockerignore` names, so there that name is added to the list.
    """
    if not what.dockerfile.startswith("../"):
        return what.dockerfile, {}
    content = Path(what.root, what.dockerfile).read_bytes()
    name = f".dockerfile.{hashlib.sha256(content).hexdigest()[:20]}"
    if builder == BUILDERS["BuilderBuildKit"]:
        return name, {name: content}
    listed = Path(what.root, ".dockerignore")
    lines = listed.read_bytes() if listed.exists() else b".dockerignore"
    return name, {name: content, ".dockerignore": lines + f"\n{name}\n".encode()}


def _admitting(patterns: list[str], needed: list[str]) -> list[str]:
    """Add exceptions for files that the builder needs although the patterns leave them out."""
    ignored = matcher(patterns)
    return [*patterns, *(f"!{path}" for path in needed if ignored.ignores(path))]


def _await(image_id: str, engine: Engine, operation: Operation) -> None:
    """Wait until the engine's store knows an image; it may lag behind the build.

    Raises:
        ProviderError: if it does not show up.
    """
    deadline = time.monotonic() + _STORE_SECONDS
    while True:
        operation.check()
        try:
            engine.json(f"/images/{image_id}/json")
        except EngineError as error:
            if error.status != 404 or time.monotonic() > deadline:
                raise ProviderError(f"unable to find built image in local image store: {error}") from error
            time.sleep(0.2)
        else:
            return


def _pull(
    cached: str, image: Image, engine: Engine, keychain: Keychain, display: Display, operation: Operation
) -> None:
    """Pull an image that serves as a cache; one that cannot be had is no error."""
    try:
        parsed = reference.parse(cached)
        query = {"fromImage": parsed.repository, "tag": parsed.digest or parsed.tag or "latest"}
        if image.build.platform:
            query["platform"] = image.build.platform
        headers = {"X-Registry-Auth": keychain.own.header()}
        display.status(f"Pulling cached image {cached}")
        with engine.request("POST", "/images/create", query=query, headers=headers, operation=operation) as response:
            progress.follow(response.messages(), display.status)
    except ProviderError as error:
        operation.check()
        display.log(f"cacheFrom image {cached} not available: {error}", "INFO")


def _push(
    name: reference.Reference,
    image_id: str,
    engine: Engine,
    keychain: Keychain,
    display: Display,
    operation: Operation,
) -> str:
    if name.digest:
        raise ProviderError(f"imageName {name}: cannot push a digest reference; name a tag")
    display.status("Pushing image to the registry")
    headers = {"X-Registry-Auth": keychain.own.header()}
    query = {"tag": name.tag or "latest"}
    try:
        with engine.request(
            "POST", f"/images/{name.repository}/push", query=query, headers=headers, operation=operation
        ) as response:
            result = progress.follow(response.messages(), display.status)
    except ProviderError as error:
        operation.check()
        raise ProviderError(_push_error(name, str(error))) from error
    operation.check()
    if result:
        display.status(f"Pushed image with digest {result['Digest']}")
        return f"{name.repository}@{result['Digest']}"
    display.log("Push completed without reporting a digest; falling back to local image inspect", "WARNING")
    for digest in engine.json(f"/images/{image_id}/json").get("RepoDigests") or []:
        if reference.parse(digest).repository == name.repository:
            return str(digest)
    raise ProviderError(f"push of {name}: the Docker daemon knows no digest of it in {name.domain}")


def _push_error(name: reference.Reference, error: str) -> str:
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, error, re.IGNORECASE)), "")
    hint = f": {advice.format(registry=name.domain)}" if advice else ""
    return f"error pushing image {name}: {' '.join(error.split())}{hint}. The image is built; the next run pushes it."
