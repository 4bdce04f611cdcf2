"""The rules of the policy pack, over plain data: the resources of a stack, and the keys of its file.

They see what Pulumi sees, whoever wrote the program: images by Pulumi's two providers of Docker, those of Slipway by
their component too, and runners and repositories by the types of Kubernetes and AWS.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

_IMAGE: Final = "slipway:image:ImageVariant"
_PRODUCT: Final = "slipway:image:BuildProduct"
_BUILD: Final = "docker:index/image:Image"
_BUILDX: Final = "docker-build:index:Image"
_COPY: Final = "docker:index/registryImage:RegistryImage"
"""An image of the engine that is pushed as it is."""
_PUSH: Final = "pulumi-python:dynamic/image:CompressedPush"
"""The push of an image of Slipway that its build does not push."""
_SIGNATURE: Final = "pulumi-python:dynamic/image:Signature"
_REPOSITORY: Final = "aws:ecr/repository:Repository"
_IMMUTABLE: Final = ("IMMUTABLE", "IMMUTABLE_WITH_EXCLUSION")
"""Amazon ECR user guide, "Preventing image tags from being overwritten"."""
_WITHIN: Final = re.compile(rf"({_IMAGE}|{_PRODUCT})\$")
"""The type of what is in an image of Slipway, whose component says all parents."""
_LATER: Final = f"unknown@sha256:{'0' * 64}"
_PLATFORM: Final = "linux/amd64"
"""For a build that names none; the parents of a Dockerfile seldom depend on it."""
_ANY_TAG: Final = re.compile(r"[*._-]+")
"""A filter of tags without a letter or digit."""
_MACHINES: Final = ("aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/instance:Instance")
_SUMMERWIND: Final = re.compile(r"kubernetes:actions\.summerwind\.dev/v1alpha1:Runner(Deployment|ReplicaSet|Set)?")
"""Runners of the older controller, ephemeral unless a spec says otherwise (actions/actions-runner-controller,
docs/deploying-arc-runners.md)."""
_LASTING: Final = re.compile(r"kubernetes:(?:apps|core)/v1:(Deployment|StatefulSet|DaemonSet|Pod)")
_RUNNER: Final = re.compile(r"(^|/)(actions-)?runner(:|@|$)")
"""GitHub's image of a runner, ghcr.io/actions/actions-runner, and summerwind/actions-runner."""
_OF_PLATFORM: Final = re.compile(r"-(amd64|arm64)$")
"""What the name of one platform's image ends with; the budget is of the name without it."""
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


class Resource(NamedTuple):
    """A resource of a stack; what a preview does not know of its properties is None.

    ``parent`` is its parent's URN, and ``dependencies`` are the URNs of those whose outputs it takes.
    """

    type: str
    urn: str
    name: str
    props: Mapping[str, Any]
    parent: str = ""
    dependencies: frozenset[str] = frozenset()


class Violation(NamedTuple):
    """What a resource violates, and how to mend it."""

    urn: str
    message: str


Settings = Mapping[str, Any]
Check = Callable[[Sequence[Resource], Settings], Iterator[Violation]]


class Rule(NamedTuple):
    """A rule: its name and description, as Pulumi shows them, and what violates it.

    A rule over the ``whole`` stack sees what resources give out, once all are declared. Any other sees what each one is
    declared with, before it is created.
    """

    name: str
    description: str
    check: Check
    whole: bool = False


def settings(resources: Sequence[Resource], root: Path) -> Settings:
    """Return the keys of a stack's file below the program's folder, without their namespace; empty without a file."""
    stack = next((resource.urn.split(":")[2] for resource in resources), "")
    file = root / "stacks" / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        return {}
    config = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("config") or {}
    return {key.removeprefix("slipway:"): value for key, value in config.items() if key.startswith("slipway:")}


def _published(resources: Sequence[Resource]) -> Iterator[Resource]:
    """Yield the images that are pushed, without build products: those of Slipway by component, others as they are."""
    slipways = {resource.urn for resource in resources if resource.type in {_IMAGE, _PRODUCT}}
    skipped = {resource.parent for resource in resources if resource.type == _BUILD and not _pushed(resource)}
    skipped -= {resource.parent for resource in resources if resource.type == _PUSH}
    for resource in resources:
        if (resource.type == _IMAGE and resource.urn not in skipped) or (
            _pushed(resource) and resource.parent not in slipways
        ):
            yield resource


def _pushed(resource: Resource) -> bool:
    """Return whether a resource of a provider of Docker pushes an image."""
    props = resource.props
    if resource.type == _BUILDX:
        exports = props.get("exports") or ()
        return bool(props.get("push")) or any("registry" in one or "image" in one for one in exports if one)
    return resource.type == _COPY or (resource.type == _BUILD and not props.get("skipPush"))


def _unlocked_parents(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    for resource in resources:
        named: Iterable[tuple[str, Any]] = ()
        if resource.type in {_IMAGE, _PRODUCT}:
            named = [
                (key, value) for key, value in (resource.props.get("args") or {}).items() if key.endswith("_IMAGE")
            ]
        elif resource.type in {_BUILD, _BUILDX} and not _WITHIN.search(resource.urn):
            try:
                named = [("a parent", parent) for parent in _parents(resource)]
            except (OSError, ValueError) as error:  # of a DockerfileError too
                yield Violation(resource.urn, f"{resource.name}: its parents cannot be read: {error}")
        for name, value in named:
            if value and value != "scratch" and not _DIGEST.search(str(value)):
                yield Violation(
                    resource.urn, f"{resource.name}: {name} is {value}, whose tag may move: run `slipway lock`"
                )


def _parents(resource: Resource) -> list[str]:
    """Return the images that a build takes, as its Dockerfile and its arguments name them.

    Raises:
        OSError: the Dockerfile is not on this machine.
        ValueError: it is not one that BuildKit takes.
    """
    # The reader of Slipway itself: it needs Python alone.
    from containers.dockerfile import instructions, stages  # noqa: PLC0415 - only where an image is another's

    props = resource.props
    build = props if resource.type == _BUILDX else props.get("build", {})
    if build is None:
        return []
    build = {"context": build} if isinstance(build, str) else build
    context, file = build.get("context", "."), build.get("dockerfile")
    if isinstance(context, Mapping):  # as docker-build has it
        context = context.get("location", ".")
    inline = file.get("inline") if isinstance(file, Mapping) else None
    path = Path((file.get("location") if isinstance(file, Mapping) else file) or f"{context}/Dockerfile")
    arguments = build.get("args") or build.get("buildArgs") or {}
    # What a preview does not know is judged in the update.
    given = {key: _LATER if value is None else str(value) for key, value in arguments.items()}
    content = inline.encode() if inline else path.read_bytes()
    try:
        reach = stages.reach(
            instructions.parse(content, str(path)),
            build.get("target") or None,
            given,
            build.get("platform") or _PLATFORM,
        )
    except instructions.DockerfileError as error:
        raise ValueError(error) from None
    return sorted(name for name in reach.outside if "://" not in name)


def _unsigned(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    signed = {
        urn
        for resource in resources
        if resource.type == _SIGNATURE
        for urn in (resource.parent, *resource.dependencies)
    }
    for image in _published(resources):
        if image.urn not in signed:
            yield Violation(image.urn, f"{image.name}: is published without a signature: set slipway:signing")


def _mutable_images(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    for resource in resources:
        if resource.type.startswith("kubernetes:"):
            for image in dict.fromkeys(_containers(resource.props)):
                if not _DIGEST.search(image):
                    yield Violation(
                        resource.urn, f"{resource.name}: runs {image}, whose tag may move: name it by its digest"
                    )


def _containers(value: Any) -> Iterator[str]:
    """Yield the images of all containers in an object, or in the values of a chart."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if key in {"containers", "initContainers"} and isinstance(member, Sequence):
                yield from (
                    str(one["image"])
                    for one in member
                    if isinstance(one, Mapping) and isinstance(one.get("image"), str)
                )
            yield from _containers(member)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for member in value:
            yield from _containers(member)


def _unbudgeted(resources: Sequence[Resource], config: Settings) -> Iterator[Violation]:
    budgets = config.get("budgets") or {}
    for image in _published(resources):
        if not {image.name, _OF_PLATFORM.sub("", image.name)} & {*budgets}:
            yield Violation(image.urn, f"{image.name}: has no largest size: set slipway:budgets")


def _mutable_repositories(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    for resource in resources:
        if resource.type != _REPOSITORY:
            continue
        mutability = resource.props.get("imageTagMutability")
        filters = [one.get("filter") or "" for one in resource.props.get("imageTagMutabilityExclusionFilters") or [{}]]
        if mutability == _IMMUTABLE[1] and (wide := next(filter(_ANY_TAG.fullmatch, filters), None)):
            yield Violation(
                resource.urn,
                f"{resource.name}: the exclusion {wide} leaves no tag that cannot be moved: name the tags that move",
            )
        elif mutability not in _IMMUTABLE:
            yield Violation(
                resource.urn,
                f"{resource.name}: imageTagMutability is {mutability or 'MUTABLE'}, so that a published tag can be "
                "moved: set IMMUTABLE, or IMMUTABLE_WITH_EXCLUSION",
            )


def _lasting_runners(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    for resource in resources:
        if why := _lasts(resource):
            yield Violation(resource.urn, f"{resource.name}: {why}, so that a job can leave things to the next one")


def _lasts(resource: Resource) -> str:
    """Return why a resource is a runner that outlives its job; empty if it is none."""
    props = resource.props
    if _SUMMERWIND.fullmatch(resource.type):
        spec = props.get("spec") or {}
        template = ((spec.get("template") or {}).get("spec") or {}) if "template" in spec else spec
        return "its runners have ephemeral: false" if template.get("ephemeral") is False else ""
    lasting = _LASTING.fullmatch(resource.type)
    if lasting and any(map(_RUNNER.search, _containers(props.get("spec")))):
        return f"it runs GitHub's runner as a {lasting[1]}, which takes job after job"
    if resource.type in _MACHINES and re.search(r"config\.sh(?!.*--ephemeral)", _script(props.get("userData"))):
        return "its user data registers a runner by config.sh without --ephemeral"
    return ""


def _script(user_data: Any) -> str:
    """Return user data as text, whether it is encoded or not."""
    text = user_data if isinstance(user_data, str) else ""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text


RULES: Final = (
    Rule("parents-locked", "Each parent image is named by its digest.", _unlocked_parents),
    Rule("images-signed", "Each published image is signed.", _unsigned, whole=True),
    Rule("no-mutable-tag", "What runs on Kubernetes is named by its digest.", _mutable_images),
    Rule("images-budgeted", "Each published image has a largest size.", _unbudgeted, whole=True),
    Rule("repositories-immutable", "A published tag of an ECR repository cannot be moved.", _mutable_repositories),
    Rule("runners-ephemeral", "Each runner ends with its job.", _lasting_runners),
)
"""The rules, all mandatory."""
