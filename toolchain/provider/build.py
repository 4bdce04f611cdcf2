"""An image's build, push and digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeGuard
from urllib.parse import urlsplit

from containers.dockerfile import failed_step
from containers.dockerfile.context import ignore_patterns
from containers.engine import image_files, zstd_push
from containers.engine.engine import Engine, EngineError, Query, Silent, json_header
from containers.engine.image_files import EngineImage
from containers.engine.pushed_layers import FOLDER
from containers.errors import SlipwayError, engine_advice
from containers.image.node_pull import size
from containers.registry.reference import Reference
from toolchain.provider import build_reach, image_name
from toolchain.provider.build_context import matcher, resolve_links
from toolchain.provider.docker_api import push_progress, tarball
from toolchain.provider.docker_api.docker_config import Keychain
from toolchain.provider.docker_api.session import Session
from toolchain.provider.inputs import BUILDERS, ImageInputs
from toolchain.provider.provider_base import Operation, Properties, Turns

_STORE_SECONDS: Final = 5
"""Seconds until a built image appears in the engine's store."""

_NEXT: Final = "The image is built; the next run pushes it."
_ADVICE: Final = (
    (
        r"immutable|cannot be overwritten",
        "{registry} has that tag from another build of the same: use that, or delete it.",
    ),
    (
        r"unauthorized|denied|no basic auth|authentication|incorrect username|forbidden|\b401\b|\b403\b",
        f"check registry.username and registry.password, or run `docker login` for {{registry}}. {_NEXT}",
    ),
    (
        r"no space left|disk quota",
        f"free space where the registry {{registry}} (or the Docker daemon) keeps its data. {_NEXT}",
    ),
    (
        r"server gave HTTP response to HTTPS client",
        f"list {{registry}} under insecure-registries of the Docker daemon, or serve it over TLS. {_NEXT}",
    ),
    (
        r"",  # unreachable, disk full, connection broken: in many wordings
        "see that the registry {registry} is up and has disk space, and that the Docker daemon can reach it. " + _NEXT,
    ),
)
"""Patterns of a failed push's error, each with its advice; the first match counts."""
_UNREACHED: Final = re.compile(
    r"(?:could not resolve host: |failed to connect to (?=\S+ port )|temporary failure resolving '|failed to resolve ')"
    r"([\w.-]+)",
    re.IGNORECASE,
)
"""The messages of git, curl, apt and pip about an unreachable host."""
_LOGIN: Final = re.compile(
    r"could not read Username for 'https?://([\w.-]+)"  # git
    r"|Authentication failed for 'https?://(?:[^/@']*@)?([\w.-]+)"  # git, with a wrong password
    r"|Failed to fetch https?://([\w.-]+)\S* +40[13] "  # apt
    r"|40[13] (?:Client )?Error\b.*? for (?:url: )?https?://([\w.-]+)"  # pip
    r"|returned error: 40[13]\b[\s\S]*?https?://([\w.-]+)"  # curl, and then the script that called it
)
"""The messages of git, apt, pip and curl about a host that asks for a login, or takes not this one."""
_ASKING: Final = re.compile(r'ask_input\(f?"User for')
"""The line of pip's traceback where an index asks for a login and nobody can type one; it names no host."""
_NO_CONTEXT: Final = re.compile(r"lookup build-context-\w+")
_OLD_STORE: Final = (
    "\nA Docker daemon before 27.5 takes no build context where containerd keeps its images: update it, or set "
    '"features": {"containerd-snapshotter": false} in its daemon.json.'
)
"""Since moby 623af652 (v27.5.0) the builder of that store reads a context from the request for the build."""
_DISK_FULL: Final = "\nFree space where the Docker daemon keeps its data; `docker system df` shows what takes it."


@dataclass(frozen=True)
class Display:
    """Takes a resource's messages.

    Attributes:
        status: takes a status line, which replaces the last one.
        log: takes a lasting line and its severity.
        hide: masks secrets in a text.
    """

    status: Callable[[str], None]
    log: Callable[[str, str], None]
    hide: Callable[[str], str]


@dataclass(frozen=True)
class BuildContext:
    """The context of a build, ready to be sent.

    Attributes:
        root: the context, absolute and resolved.
        dockerfile: the Dockerfile's path relative to it; begins with `../` where it lies outside.
        patterns: ignore patterns.
    """

    root: str
    dockerfile: str
    patterns: list[str]


def source(image: ImageInputs) -> BuildContext:
    """Return the context and the Dockerfile of an image. Raises SlipwayError: if one of them does not exist."""
    try:
        root = resolve_links(os.path.abspath(image.build.context))  # noqa: PTH100 - no link is followed before ".."
        if not Path(root).is_dir():
            raise SlipwayError(f"error resolving context: context must be a directory: {root}")
        dockerfile = resolve_links(os.path.abspath(image.build.dockerfile))  # noqa: PTH100
    except OSError as error:
        raise SlipwayError(f"error resolving context: {error.filename}: {error.strerror}") from error
    return BuildContext(
        root, os.path.relpath(dockerfile, root), ignore_patterns(image.build.context, image.build.dockerfile)
    )


def produce(
    image: ImageInputs,
    engine: Engine,
    display: Display,
    operation: Operation,
    *,
    push: bool,
    secrets: Mapping[str, str] | None = None,
    level: int | None = None,
    turns: Turns | None = None,
) -> Properties:
    """Build an image, and push it if ``push``, or keep it in the engine. Returns the resource's outputs.

    ``operation`` can cancel the build. ``secrets`` are what its steps may mount, by id. ``level`` is that of zstd for
    the pushed layers; None for the engine's gzip. ``turns`` is how many builds the engine gets at a time; None for all.
    A push takes no turn.

    Raises SlipwayError: the build or the push fails; after a failed push the built image stays in the engine.
    """
    context = source(image)
    name = image_name.parse(image.name)
    if push and name.digest:
        raise SlipwayError(f"imageName {name}: cannot push a digest reference; name a tag")
    given = secrets or {}
    reach = build_reach.of(image, Path(context.root, context.dockerfile))
    if reach.unread:
        display.log(f"builds without logins of parents' registries and without secrets: {reach.unread}", "WARNING")
    lent = {name: secret for name, secret in given.items() if name in reach.secrets}
    work = _Work(image, engine, Keychain(image, reach.registries), display, operation, lent)
    if work.keychain.warning and (push or image.build.cache_from):
        display.log(work.keychain.warning, "WARNING")
    for cached in image.build.cache_from:
        work.pull(cached)
    sent = None
    if reach.secrets - {*given} and _hashes_below_secrets(engine):
        sent = build_reach.for_hashing_engine(image, context.root, context.dockerfile, given)
    waits = partial(display.status, "Waiting for another build to end")
    with turns.one(operation, waits) if turns else nullcontext():
        image_id = work.build(context, sent)
    work.wait_for(image_id)
    digest = work.push(name, image_id, level) if push else work.identity()
    return {
        "baseImageName": image.name,
        "context": image.build.context,
        "dockerfile": context.dockerfile,
        "imageName": image.name,
        "platform": image.build.platform,
        "registryServer": image.registry.server,
        "repoDigest": digest,
    }


def _hashes_below_secrets(engine: Engine) -> bool:
    """Return whether an engine's BuildKit is v0.13 to v0.15, by the engine's release (its vendor.mod)."""
    release = re.match(r"(\d+)\.(\d+)\.", str(engine.json("/version").get("Version")))
    return release is not None and (26, 0) <= (int(release[1]), int(release[2])) < (27, 3)


@dataclass(frozen=True)
class _Work:
    """The requests that make one image."""

    image: ImageInputs
    engine: Engine
    keychain: Keychain
    display: Display
    operation: Operation
    secrets: Mapping[str, str] = field(repr=False)

    def pull(self, cached: str) -> None:
        """Pull an image that serves as a cache; a missing one is no error."""
        try:
            name = image_name.parse(cached)
            query = {"fromImage": name.repository, "tag": name.digest or name.tag or "latest"}
            if self.image.build.platform:
                query["platform"] = self.image.build.platform
            self.display.status(f"Pulling cached image {cached}")
            self._transfer(name, "/images/create", query)
        except SlipwayError as error:
            self.operation.check()
            self.display.log(f"cacheFrom image {cached} not available: {error}", "INFO")

    def build(self, context: BuildContext, sent: bytes | None = None) -> str:
        """Build the image and return its id; ``sent`` takes the place of the context's Dockerfile."""
        classic = self.image.build.builder == BUILDERS["BuilderV1"]
        dockerfile, extra = _build_files(context, classic=classic)
        extra |= {} if sent is None else {dockerfile: sent}
        patterns = _admitting(context.patterns, [dockerfile, *extra, *([".dockerignore"] if classic else [])])
        query = _query(self.image, dockerfile)
        headers = {"Content-Type": "application/x-tar"}
        log = push_progress.BuildLog(self.display.status, self.display.hide)
        self.display.status("Starting Docker build")
        with ExitStack() as stack:
            if classic:
                headers["X-Registry-Config"] = self.keychain.everything()
            else:
                query["session"] = stack.enter_context(Session(self.engine, self._login, self.secrets)).id
            request = self.engine.request(
                "POST",
                "/build",
                query=query,
                headers=headers,
                body=lambda writer: tarball.write(writer, context.root, patterns, extra),
                sent=lambda total: self.display.status(f"Sending the build context: {size(total)}"),
                ending=self.operation.ending,
            )
            try:
                log.follow(stack.enter_context(request).messages())
            except (EngineError, push_progress.StreamError) as error:
                advice = self._advice(str(error))
                root = Path(context.root)
                place = failed_step.place(log.error, root, root / context.dockerfile)
                raise SlipwayError(f"error building image {self.image.name}: {place}{error}{advice}") from error
            except Silent as error:
                raise SlipwayError(f"error building image {self.image.name}: {log.running()}{error}") from error
        self.operation.check()
        if not log.image_id:
            raise SlipwayError(f"error building image {self.image.name}: no image id found in build output")
        self.display.status(f"Built image with id {log.image_id}")
        return log.image_id

    def _advice(self, error: str) -> str:
        args = self.image.build.args
        return _advice(error, [url for name, url in args.items() if name.endswith("_INDEX_URL")])

    def wait_for(self, image_id: str) -> None:
        """Wait until the engine's store knows an image; it may lag behind the build."""
        deadline = time.monotonic() + _STORE_SECONDS
        while True:
            self.operation.check()
            try:
                self.engine.json(f"/images/{image_id}/json")
            except EngineError as error:
                if error.status != HTTPStatus.NOT_FOUND or time.monotonic() > deadline:
                    raise SlipwayError(f"unable to find built image in local image store: {error}") from error
                time.sleep(0.2)
            else:
                return

    def identity(self) -> str:
        """Return the id that the engine gives the image by its name."""
        identity = self.engine.json(f"/images/{self.image.name}/json").get("Id")
        if not isinstance(identity, str):
            raise SlipwayError(f"{self.image.name}: the Docker daemon says no id of it")
        return identity

    def push(self, name: Reference, image_id: str, level: int | None) -> str:
        """Push the image, with zstd of a ``level`` if there is one, and return `repository@digest`."""
        if level is not None:
            return f"{name.repository}@{self._push_zstd(replace(name, tag=name.tag or 'latest'), image_id, level)}"
        self.display.status("Pushing image to the registry")
        try:
            pushed = self._transfer(name, f"/images/{name.repository}/push", {"tag": name.tag or "latest"})
        except (EngineError, push_progress.StreamError) as error:
            raise SlipwayError(_push_error(name, str(error))) from error
        self.operation.check()
        if pushed:
            self.display.status(f"Pushed image with digest {pushed}")
            return f"{name.repository}@{pushed}"
        self.display.log("Push completed without reporting a digest; falling back to local image inspect", "WARNING")
        listed = self.engine.json(f"/images/{image_id}/json").get("RepoDigests")
        for digest in filter(_is_text, listed if isinstance(listed, list) else []):
            if image_name.parse(digest).repository == name.repository:
                return digest
        raise SlipwayError(f"push of {name}: the Docker daemon knows no digest of it in {name.host}")

    def _push_zstd(self, name: Reference, image_id: str, level: int) -> str:
        """Push the image with layers of zstd, and return its digest.

        The engine then pulls it by its digest, of which it has all but the manifest: what is built on the image finds
        it there. With containerd's store an engine would pull all of it, so that it does when it has to.
        """
        known = self.keychain.for_host(name.host)
        login = replace(known, host=name.host) if known.password or known.identity_token else None
        image = EngineImage.held(image_id, self.engine, self.operation.ending)
        try:
            digest, config, delays = zstd_push.push(image, str(name), level, login, FOLDER, self._progress)
        except SlipwayError as error:
            advice = _DISK_FULL if image_files.disk_full(error) else ""
            raise SlipwayError(f"error pushing image {name}: {error}. {_NEXT}{advice}") from None
        self.display.status(f"Pushed image with digest {digest}")
        for line in delays:
            self.display.log(f"{name}: {line}", "INFO")
        if config == image_id:
            try:
                self._transfer(name, "/images/create", {"fromImage": name.repository, "tag": digest})
            except SlipwayError as error:
                self.operation.check()
                self.display.log(f"{name}: the Docker daemon does not know its digest: {error}", "INFO")
        return digest

    def _progress(self, line: str) -> None:
        self.operation.check()
        self.display.status(line)

    def _transfer(self, name: Reference, path: str, query: Query) -> str:
        """Pull or push with the credentials of the image's own registry; return the digest of a push."""
        headers = {"X-Registry-Auth": json_header(self.keychain.for_host(name.host).auth_config)}
        with self.engine.request("POST", path, query=query, headers=headers, ending=self.operation.ending) as response:
            return push_progress.follow(response.messages(), self.display.status)

    def _login(self, host: str) -> tuple[str, str]:
        """Return the credentials for a registry that BuildKit asks for."""
        login = self.keychain.for_host(host)
        return login.username, login.identity_token or login.password


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _advice(error: str, indexes: Sequence[str] = ()) -> str:
    """Return what to do about a build's error as a further line; empty if that is not known.

    ``indexes`` are the addresses of Python indexes that the build was given.
    """
    if "no space left" in error.lower():
        return _DISK_FULL
    if _NO_CONTEXT.search(error):
        return _OLD_STORE
    if advice := engine_advice(error):
        return advice
    closed = dict.fromkeys(name for match in _LOGIN.findall(error) for name in match if name)
    if _ASKING.search(error):
        closed |= dict.fromkeys(host for url in indexes if (host := urlsplit(url).hostname))
    if closed:
        return "".join(
            f"\n{host} asks for a login: give slipway:buildSecrets its username and password "
            f"(`pulumi config set --secret --path 'slipway:buildSecrets[\"{host}\"].password'`), or mend what it has."
            for host in closed
        )
    hosts = ", ".join(dict.fromkeys(_UNREACHED.findall(error)))
    return f"\nThe build did not reach {hosts}: check the network, or name a mirror that it reaches." if hosts else ""


def _query(image: ImageInputs, dockerfile: str) -> dict[str, str | Sequence[str]]:
    build = image.build
    query: dict[str, str | Sequence[str]] = {
        "t": image.name,
        "dockerfile": dockerfile,
        "version": build.builder,
        "buildargs": json.dumps(build.args) if build.args else "",
        "cachefrom": json.dumps(build.cache_from) if build.cache_from else "",
        "extrahosts": build.add_hosts,
        "networkmode": "" if build.network == "default" else build.network,
        "platform": build.platform.lower(),
        "target": build.target,
    }
    return {key: value for key, value in query.items() if value}


def _build_files(context: BuildContext, *, classic: bool) -> tuple[str, dict[str, bytes]]:
    """Return the Dockerfile's name within the stream, and the files to add to it.

    A Dockerfile outside the context is added under a name from its content. The first builder removes the files of
    `.dockerignore`, so the name is added to that list.
    """
    if not context.dockerfile.startswith("../"):
        return context.dockerfile, {}
    content = Path(context.root, context.dockerfile).read_bytes()
    name = f".dockerfile.{hashlib.sha256(content).hexdigest()[:20]}"
    if not classic:
        return name, {name: content}
    listed = Path(context.root, ".dockerignore")
    lines = listed.read_bytes() if listed.exists() else b".dockerignore"
    return name, {name: content, ".dockerignore": lines + f"\n{name}\n".encode()}


def _admitting(patterns: list[str], needed: list[str]) -> list[str]:
    """Add exceptions for files that the builder needs but the patterns exclude."""
    ignored = matcher(patterns)
    return [*patterns, *(f"!{path}" for path in needed if ignored.ignores(path))]


def _push_error(name: Reference, error: str) -> str:
    advice = next(text for pattern, text in _ADVICE if re.search(pattern, error, re.IGNORECASE))
    hint = advice.format(registry=name.host)
    return f"error pushing image {name}: {' '.join(error.split())}: {hint}"
