"""A chain of two images under Pulumi's mocks, which keep what is registered and answer as the providers do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime import resource as registration
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import wait_for_rpcs

from components.deployment import deploy
from components.runners.kubernetes.certificates import make
from containers.platform_name import architecture
from stacks import flavors
from stacks.placement import place
from stacks.plan import Plan, PlannedImage
from stacks.spec import CHECKED_ARG, ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from tests.helpers.contents import content

DIGEST = "sha256:" + "a" * 64
SECRET = "4dabf18193072939515e22adb298388d"
CHAIN: dict[str, dict[str, str]] = {"torch": {}, "extras": {"BASE_IMAGE": "torch"}}
"""The images with their parents."""
TOKEN = "t0ken-"
"""How every password that AWS gives starts."""


# The SDK sends Pulumi the place in the source of each resource, with all fifty frames of pytest. Nothing here reads it.
registration._get_stack_trace = source_pb2.StackTrace


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine that waits for nothing returns, as that of plain properties is."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("an answer of the mocks waits for something")


# The mocks' own way needs an event loop in each thread that they answer in.
vars(mocks).update(_sync_await=_at_once, _ensure_event_loop=lambda: None)


class _Here(ThreadPoolExecutor):
    """Has each call answered where it is made: for one of the mocks, a thread costs more than the answer.

    So no two of a program's calls overlap, nor those that it gives to a thread for itself.
    """

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Recorder(pulumi.runtime.Mocks):
    """Keeps every resource that is registered, and answers images as the provider does."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.answers = answers
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}
        self.providers: dict[str, str] = {}
        """The name of each image's provider, by the image's; empty for the default one."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.hooks: list[Callable[[pulumi.ErrorHookArgs], Any]] = []

    def register_error_hook(self, hook: pulumi.ErrorHook) -> None:
        """Take the place of the SDK's server of callbacks, which no mock calls."""
        self.hooks.append(hook.callback)

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        assert (args.typ, args.name) not in self.resources
        self.resources[args.typ, args.name] = args.inputs
        if args.typ == "pulumi-python:dynamic/runners:Certificates":
            return args.name, {**args.inputs, **make(args.inputs["hosts"])}
        if args.typ == "kubernetes:batch/v1:Job":
            return args.name, {**args.inputs, "status": {"succeeded": 1}}
        if args.typ != "docker:index/image:Image":
            return args.name, {**args.inputs, **self.answers.get(args.name, {})}
        # provider is the URN of the provider and its id, urn:pulumi:t::slipway::pulumi:providers:docker::NAME::ID.
        self.providers[args.name] = (args.provider or "::" * 4).split("::")[3]
        name = args.inputs["imageName"]
        pushed = f"{name.rpartition(':')[0]}@{DIGEST}"
        digest = DIGEST if args.inputs["skipPush"] else pushed
        return name, {**args.inputs, "repoDigest": digest, **self.answers.get(args.name, {})}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Answer the one function that a component calls: every token is another, as AWS's are."""
        assert args.token == "aws:ecr/getAuthorizationToken:getAuthorizationToken"
        self.calls.append((args.token, args.args))
        return {"userName": "AWS", "password": f"{TOKEN}{len(self.calls)}"}, []

    def of_type(self, typ: str) -> dict[str, dict[str, Any]]:
        """Return the resources of a type, by name."""
        return {name: inputs for (kind, name), inputs in self.resources.items() if kind == typ}

    def image(self, name: str) -> dict[str, Any]:
        return self.resources["docker:index/image:Image", name]

    def variant(self, name: str) -> dict[str, Any]:
        return self.resources["slipway:image:ImageVariant", name]


def planned(
    name: str,
    *,
    product: bool = False,
    extra_tags: tuple[str, ...] = (),
    base: str = "",
    checks: Mapping[str, str] | None = None,
    platform: str = "linux/amd64",
    index: str | None = None,
    **parents: str,
) -> PlannedImage:
    """Return an image; ``checks`` are the files of its checks, ``index`` names its index of several platforms."""
    spec = ImageSpec(
        name=name,
        repository=index,
        platform=platform,
        dockerfile=f"{name}/Dockerfile",
        args={"V": "1"},
        parents={a: Sibling(image=p) for a, p in parents.items()}
        or {"BASE_IMAGE": Outside(reference=base or "debian:12")},
        description="d",
        licenses="MIT",
        suffix=Suffix(variant="base"),
        product=product,
    )
    of = content(spec)
    if checks is not None:
        checked = spec.model_copy(update={"target": "checks", "parents": {CHECKED_ARG: Sibling(image=name)}})
        of = replace(of, checks=content(checked, checks, "FROM checks\n", {}))
    return PlannedImage(
        content=of,
        repository=f"r.example/x/{spec.published_name}",
        tag="abc1234-base",
        args={"V": "1", **({"BASE_IMAGE": base} if base and not parents else {})},
        parents={argument: f"r.example/x/{parent}:abc1234-base" for argument, parent in parents.items()},
        fingerprint="f" * 64,
        extra_tags=() if product else extra_tags,
        checks_args={"V": "1"} if checks is not None else {},
        index_tag="abc1234-base" if index else None,
    )


def _by_platform(
    chain: Mapping[str, Mapping[str, str]], products: Collection[str], platforms: Sequence[str]
) -> Iterator[tuple[str, str, str, Mapping[str, str]]]:
    """Yield the name, index, platform and parents of each image, as ``stacks.platforms`` names them."""

    def named(image: str, platform: str) -> str:
        return image if image in products or not platforms else f"{image}-{architecture(platform)}"

    for name, parents in chain.items():
        for platform in ("linux/amd64",) if name in products else platforms or ("linux/amd64",):
            own = {argument: named(parent, platform) for argument, parent in parents.items()}
            yield named(name, platform), name, platform, own


def run(
    *,
    preview: bool = False,
    products: tuple[str, ...] = (),
    chain: dict[str, dict[str, str]] = CHAIN,
    gpu_checks: Mapping[str, str] | None = None,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    checks: Mapping[str, Mapping[str, str]] | None = None,
    on: Mapping[str, str] | None = None,
    indexed: bool = False,
    stack: str = "t",
    of: Plan | None = None,
    **config: Any,
) -> tuple[Recorder, dict[str, Any]]:
    """Deploy a chain of images, or of ``products`` among them; return what was registered and the outputs' values.

    ``answers`` are outputs of resources, by name. ``checks`` has the files of images' checks, and ``on`` the platforms of
    images that are not for linux/amd64. With ``indexed``, each image is one for each of the stack's platforms, and each
    product is one for all. ``of`` is a whole plan in place of the chain and the configuration.
    """
    recorder = Recorder(answers or {})
    values: dict[str, Any] = {}

    async def go() -> None:
        asyncio.get_running_loop().set_default_executor(_Here())
        # A run that failed leaves what it waited for, which belongs to a loop that has ended.
        SETTINGS.outputs.clear()
        SETTINGS.rpc_manager.clear()
        pulumi.runtime.set_mocks(recorder, project="slipway", stack=stack, preview=preview)
        SETTINGS.callbacks = recorder  # it has what a program of ours calls
        plan = of or Plan(
            stack,
            flavors.load({"flavor": "local", **config}, f"stack {stack}"),
            tuple(
                planned(
                    name,
                    product=index in products,
                    extra_tags=tuple(config.get("extraTags", ())),
                    base=config.get("base", ""),
                    checks=(checks or {}).get(index),
                    platform=(on or {}).get(name, platform),
                    index=index if name != index else None,
                    **parents,
                )
                for name, index, platform, parents in _by_platform(
                    chain, products, config["platforms"] if indexed else ()
                )
            ),
            gpu_checks or {},
        )
        outputs = deploy(place(plan))
        values["outputs"] = await pulumi.Output.from_input(outputs).future()
        await wait_for_rpcs()  # what no output waits for
        values["secret"] = await pulumi.Output.from_input(outputs).is_secret()

    asyncio.run(go())
    return recorder, values
