"""The inputs of `docker:index/image:Image`: their types, checks and defaults."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from containers.dockerfile.ignore import join
from containers.errors import SlipwayError
from toolchain.provider import image_name
from toolchain.provider.build_context import Digests
from toolchain.provider.provider_base import Properties, Unknown

BUILDERS = {"BuilderV1": "1", "BuilderBuildKit": "2"}
"""The number of each `builderVersion` in the engine's API."""
_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
"""Go's names of machines by Python's, where they differ."""


@dataclass(frozen=True)
class RegistryInputs:
    """The registry to push to, and its login. Omitted values are empty.

    ``short_lived`` is whether the program has the login from its cloud identity, as ``shortLived``. The official
    provider reads no such key (pulumi-docker at 237b7899, provider/image.go:663).
    """

    server: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    short_lived: bool = False


@dataclass(frozen=True)
class BuildInputs:
    """What to build. Paths are relative to the program's directory."""

    context: str
    dockerfile: str
    args: dict[str, str]
    builder: str
    cache_from: list[str]
    add_hosts: list[str]
    target: str
    network: str
    platform: str


@dataclass(frozen=True)
class ImageInputs:
    """One `docker.Image` whose inputs are all known."""

    name: str
    build: BuildInputs
    registry: RegistryInputs
    skip_push: bool


def host_platform() -> str:
    """Return the default platform of a build: Linux on this machine's architecture."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def image(inputs: Properties) -> ImageInputs:
    """Read checked inputs, without secrets' wrappers. Raises SlipwayError: for a value of the wrong type."""
    build = inputs.get("build")
    if not isinstance(build, dict):
        raise SlipwayError("build: must be an object with context, dockerfile, ... ")
    return ImageInputs(
        name=_text(inputs, "imageName"),
        build=BuildInputs(
            context=_text(build, "context") or ".",
            dockerfile=_text(build, "dockerfile"),
            args=_args(build),
            builder=_builder(build),
            cache_from=_cache_from(build),
            add_hosts=_texts(build.get("addHosts"), "build.addHosts"),
            target=_text(build, "target"),
            network=_text(build, "network"),
            platform=_text(build, "platform"),
        ),
        registry=_registry(inputs.get("registry")),
        skip_push=_flag(inputs, "skipPush"),
    )


def check(inputs: Properties, digests: Digests) -> Properties:
    """Check a program's inputs, without secrets' wrappers, and return the values to add.

    Unknown values pass, and values that depend on them are left out. `build` has only the keys to set in it.
    ``digests`` computes the context's digest.

    Raises SlipwayError: an input is wrong, with its name.
    """
    build = inputs.get("build")
    additions: Properties = {"buildOnPreview": inputs.get("buildOnPreview", False) is True}
    if isinstance(build, Unknown):
        return additions
    if build is None:
        build = {}
    if not isinstance(build, dict):
        raise SlipwayError(f"build: expected an object, got {type(build).__name__}")
    additions["build"] = _check_build(build, digests)
    cached = _cache_from(build)
    name = inputs.get("imageName")
    if isinstance(name, str) and (cached or not _flag(inputs, "skipPush")):
        server = image_name.registry_of(_registry(inputs.get("registry")).server, name)
        for cache in cached:
            image_name.registry_of(server, cache)
    return additions


def _check_build(build: Properties, digests: Digests) -> Properties:
    _builder(build)
    _args(build)
    additions: Properties = {}
    context = build.get("context", ".")
    dockerfile = build.get("dockerfile")
    if not isinstance(context, Unknown):
        additions["context"] = _text(build, "context", ".")
        if dockerfile is None:
            dockerfile = join(context, "Dockerfile")
    if dockerfile is not None and not isinstance(dockerfile, Unknown):
        additions["dockerfile"] = dockerfile = _text({"dockerfile": dockerfile}, "dockerfile")
        _find(dockerfile, "" if isinstance(context, Unknown) else context)
        if not isinstance(context, Unknown):
            additions["contextDigest"] = digests.context(context, dockerfile)
    if build.get("platform") is None:
        additions["platform"] = host_platform()
    return additions


def _find(dockerfile: str, context: str) -> None:
    """Raise SlipwayError if there is no Dockerfile, with the likely path."""
    try:
        Path(dockerfile).stat()
    except OSError as error:
        if Path(dockerfile).is_absolute():
            raise SlipwayError(
                f'expected a relative Dockerfile path; got "{dockerfile}" instead: {error.strerror}'
            ) from error
        meant = join(context, dockerfile)
        if not Path(meant).exists():
            raise SlipwayError(
                f'could not open dockerfile at relative path "{dockerfile}": {error.strerror}'
            ) from error
        raise SlipwayError(
            f'could not open dockerfile at relative path "{dockerfile}". Try setting `dockerfile` to "{meant}"'
        ) from error


def _text(properties: Properties, key: str, default: str = "") -> str:
    return cast("str", _typed(properties, key, str, "a string", default))


def _flag(properties: Properties, key: str) -> bool:
    return cast("bool", _typed(properties, key, bool, "true or false", default=False))


def _typed(properties: Properties, key: str, kind: type, expected: str, default: Any) -> Any:
    value = properties.get(key)
    if value is None or isinstance(value, Unknown):
        return default
    if not isinstance(value, kind):
        raise SlipwayError(f"{key}: expected {expected}, got {value!r}")
    return value


def _texts(value: Any, name: str) -> list[str]:
    if value is None or isinstance(value, Unknown):
        return []
    if not isinstance(value, list):
        raise SlipwayError(f"{name}: expected a list of strings, got {value!r}")
    return [item for item in value if isinstance(item, str)]


def _args(build: Properties) -> dict[str, str]:
    args = build.get("args")
    if args is None or isinstance(args, Unknown):
        return {}
    if not isinstance(args, dict):
        raise SlipwayError("build.args: expected an object of strings")
    wrong = [key for key, value in args.items() if not isinstance(value, str | Unknown)]
    if wrong:
        raise SlipwayError(f"build.args.{wrong[0]}: expected a string; quote it")
    return {key: value for key, value in args.items() if isinstance(value, str)}


def _builder(build: Properties) -> str:
    version = build.get("builderVersion")
    if version is None or isinstance(version, Unknown):
        return BUILDERS["BuilderBuildKit"]
    if version not in BUILDERS:
        raise SlipwayError(
            f"build.builderVersion: invalid Docker Builder version {version!r}; it is one of {', '.join(BUILDERS)}"
        )
    return BUILDERS[version]


def _cache_from(build: Properties) -> list[str]:
    cache = build.get("cacheFrom")
    if not isinstance(cache, dict):
        return []
    if "images" not in cache:
        raise SlipwayError("build.cacheFrom: cacheFrom requires an `images` field")
    images = cache["images"]
    if not isinstance(images, list | Unknown):
        raise SlipwayError("build.cacheFrom.images: the `images` field must be a list of strings")
    return _texts(images, "build.cacheFrom.images")


def _registry(value: Any) -> RegistryInputs:
    if not isinstance(value, dict):
        return RegistryInputs()
    server, username, password = (_text(value, key) for key in ("server", "username", "password"))
    return RegistryInputs(server, username, password, short_lived=_flag(value, "shortLived"))
