"""The gRPC methods of the docker provider. They decode requests, call the other modules and encode responses."""

# ruff: noqa: ARG002, N802 - the protocol gives the methods their names and arguments

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import provider_pb2

from containers.engine.connection import CONNECT_SECONDS
from containers.engine.engine import Engine
from containers.errors import SlipwayError
from toolchain.provider import inputs, provider_config
from toolchain.provider.build_context import Digests
from toolchain.provider.image_diff import diff
from toolchain.provider.provider_base import (
    Cancelled,
    Host,
    Properties,
    Provider,
    Secret,
    StatusLine,
    Turns,
    decode_struct,
    encode_struct,
    has_unknown,
    plain,
    secret_texts,
    without_nulls,
)

UPDATE_SETTINGS: Final = "docker:index/updateSettings:updateSettings"
"""A function of this provider alone. It takes what ``docker.Image`` has no input for, for the builds of one update.

That is what they may mount as secrets, and the level of zstd of each image whose layers it compresses, by its name."""
GET_REGISTRY_IMAGE: Final = "docker:index/getRegistryImage:getRegistryImage"
_DERIVED: Final = {
    "imageName": ("imageName",),
    "baseImageName": ("imageName",),
    "repoDigest": ("imageName",),
    "registryServer": ("registry", "server"),
    "context": ("build", "context"),
    "dockerfile": ("build", "dockerfile"),
    "platform": ("build", "platform"),
}
"""The input that each output repeats; the output of a secret input is secret."""
_FEWEST: Final = 3
"""Builds that an engine gets at a time, however few its cores: a build may wait for a network."""
_SHORTEST_SECRET: Final = 4
"""Shorter secrets are not masked in output: they would match too much."""


class DockerProvider(Provider):
    """Provides `docker.Image` and `docker.get_registry_image`."""

    version = metadata.version("pulumi-docker")
    """The SDK's version, as Pulumi looks for a plugin of that version."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._digests = Digests()
        self._settings: Properties = {}
        self._secrets: dict[str, str] = {}
        self._masked: list[str] = []
        self._levels: dict[str, int] = {}
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()
        self._turns: Turns | None = None

    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        """Return the provider's schema."""
        if request.version != 0:
            raise SlipwayError(f"unsupported schema version {request.version}")
        schema = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
        return provider_pb2.GetSchemaResponse(schema=json.dumps({**schema, "version": self.version}))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Check the provider's own configuration."""
        checked, failures = provider_config.check(decode_struct(request.news))
        if failures:
            return provider_pb2.CheckResponse(failures=[provider_pb2.CheckFailure(reason=line) for line in failures])
        return provider_pb2.CheckResponse(inputs=encode_struct(checked))

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Compare configurations."""
        return provider_config.diff(plain(decode_struct(request.old_inputs)), plain(decode_struct(request.news)))

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Store the configuration, and check that the Docker daemon answers.

        A daemon behind ssh is connected at its first use, and so is any with `disableDockerDaemonCheck`.
        """
        self._settings, self._engine, self._turns = provider_config.settings(request.variables), None, None
        if not self._settings.get("host", "").startswith("ssh://") and not self._settings.get(
            "disableDockerDaemonCheck"
        ):
            self._connect()
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        """Look an image up in its registry, or take settings for the builds that follow."""
        if request.tok == UPDATE_SETTINGS:
            args = plain(decode_struct(request.args))
            self._secrets, self._masked = dict(args.get("secrets") or {}), list(args.get("masked") or [])
            self._levels = {name: int(level) for name, level in (args.get("levels") or {}).items()}
            return provider_pb2.InvokeResponse()
        from toolchain.provider.docker_api import registry_digest  # noqa: PLC0415 - few programs look anything up

        if request.tok != GET_REGISTRY_IMAGE:
            raise SlipwayError(f"unrecognized data function (Invoke): {request.tok}; there is {GET_REGISTRY_IMAGE}")
        args = plain(decode_struct(request.args))
        if not isinstance(args.get("name"), str):
            reason = "name: missing required argument, the image's name"
            return provider_pb2.InvokeResponse(failures=[provider_pb2.CheckFailure(reason=reason)])
        skip_verify = args.get("insecureSkipVerify") is True
        digest = registry_digest.digest(args["name"], self._settings.get("registryAuth") or [], verify=not skip_verify)
        image = {"id": digest, "name": args["name"], "insecureSkipVerify": skip_verify, "sha256Digest": digest}
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(encode_struct(image))
        return response

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Fill in defaults and the context's digest."""
        news = decode_struct(request.news)
        additions = inputs.check(plain(news), self._digests)
        if "platform" in additions.get("build", {}):
            platform = additions["build"]["platform"]
            self.host.log(
                request.urn,
                f"Building your image for {platform} architecture. To ensure you are building for the "
                "correct platform, consider explicitly setting the `platform` field on ImageBuildOptions.",
            )
        return provider_pb2.CheckResponse(inputs=encode_struct(_merge(without_nulls(news), additions)))

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Compare new inputs with those of the present image."""
        return diff(plain(decode_struct(request.olds)), plain(decode_struct(request.news)))

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Build and push."""
        outputs = self._make(request.urn, request.properties, context, preview=request.preview)
        if outputs is None:
            return provider_pb2.CreateResponse(properties=request.properties)
        return provider_pb2.CreateResponse(id=plain(outputs["imageName"]), properties=encode_struct(outputs))

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Build and push again."""
        outputs = self._make(request.urn, request.news, context, preview=request.preview)
        return provider_pb2.UpdateResponse(properties=request.news if outputs is None else encode_struct(outputs))

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Return the state: anybody may have pushed to the tag in the registry since."""
        return provider_pb2.ReadResponse(id=request.id, inputs=request.inputs, properties=request.properties)

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Do nothing: the image stays in the registry, where others may use it."""
        return empty_pb2.Empty()

    def _connect(self) -> Engine:
        with self._engine_lock:
            if self._engine is None:
                self._engine = provider_config.connect(self._settings)
            return self._engine

    def _turns_on(self, engine: Engine) -> Turns | None:
        """Return how many builds the engine gets at a time: one for each of its cores, and at least :data:`_FEWEST`.

        None where the address is a stack's own socket: behind it may be several engines, which share the images.
        """
        host = engine.address.host
        if host.startswith("unix://") and not host.startswith("unix:///"):
            return None
        with self._engine_lock:
            if self._turns is None:
                self._turns = Turns(max(_FEWEST, _cores(engine)))
            return self._turns

    def _make(
        self, urn: str, properties: struct_pb2.Struct, context: grpc.ServicerContext, *, preview: bool
    ) -> Properties | None:
        """Build, and push unless this is a preview; return None if a preview does not build."""
        news = decode_struct(properties)
        bare = plain(news)
        if preview and not self._builds_on_preview(urn, bare):
            return None
        from toolchain.provider import build  # noqa: PLC0415 - a preview that builds nothing starts faster

        password = Secret(bare.get("registry", {}).get("password", ""))
        hide = _hiding([*secret_texts([news, password]), *self._masked])
        status = StatusLine(lambda line: self.host.log(urn, hide(line), ephemeral=True))
        display = build.Display(status, lambda line, severity: self.host.log(urn, hide(line), severity), hide)
        image = inputs.image(bare)
        try:
            with self.operation(context) as operation:
                push, level = not (image.skip_push or preview), self._levels.get(image.name)
                engine = self._connect()
                outputs = build.produce(
                    image, engine, display, operation,
                    push=push, secrets=self._secrets, level=level, turns=self._turns_on(engine),
                )  # fmt: skip
        except Cancelled:
            raise Cancelled(f"build of {image.name} cancelled") from None
        except SlipwayError as error:
            raise SlipwayError(hide(str(error))) from error
        finally:
            status.flush()
        secret = {name for name, path in _DERIVED.items() if _is_secret(news, path)}
        marked = {name: Secret(value) if name in secret else value for name, value in outputs.items()}
        return {**marked, "__inputs": Secret(bare)}

    def _builds_on_preview(self, urn: str, bare: Properties) -> bool:
        if bare.get("buildOnPreview") is not True:
            return False
        build = bare.get("build")
        needed = [
            bare.get("imageName"),
            build if not isinstance(build, dict) else [build.get(k) for k in ("dockerfile", "context", "args")],
        ]
        if not has_unknown(needed):
            return True
        self.host.log(
            urn,
            "Minimum inputs for build are unresolved. Continuing without preview image build. To avoid this warning, "
            "ensure image name, dockerfile, args, and context are resolved at preview.",
            "WARNING",
        )
        return False


def _cores(engine: Engine) -> int:
    """Return how many cores an engine has, 0 where it does not say; its builds say what is wrong with it."""
    try:
        cores = engine.json("/info", timeout=CONNECT_SECONDS).get("NCPU")
    except SlipwayError:
        return 0
    return cores if isinstance(cores, int) else 0


def _merge(news: Properties, additions: Properties) -> Properties:
    """Add values to the inputs; an equal value keeps its secrecy."""
    merged = dict(news)
    for key, value in additions.items():
        present = merged.get(key)
        if isinstance(present, Secret) and plain(present) != value:
            merged[key] = Secret(_merge(present.value, value) if isinstance(value, dict) else value)
        elif isinstance(value, dict):
            merged[key] = _merge(present if isinstance(present, dict) else {}, value)
        elif plain(present) != value:
            merged[key] = value
    return merged


def _is_secret(news: Properties, path: Iterable[str]) -> bool:
    value: Any = news
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, Secret):
            return True
    return False


def _hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks secrets in a text, as a whole and each of their lines."""
    lines = {line.strip() for text in secrets for line in (text, *text.splitlines())}
    known = sorted((line for line in lines if len(line) >= _SHORTEST_SECRET), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "[secret]")
        return text

    return hide
