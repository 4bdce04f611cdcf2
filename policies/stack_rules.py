"""The rules of the policy pack, over plain data: the resources of a stack, and the keys of its file.

They see what Pulumi sees, whoever wrote the program: the images of Slipway by their component, and runners and
repositories by the types of Kubernetes and AWS.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

_IMAGE: Final = "slipway:image:ImageVariant"
_PRODUCT: Final = "slipway:image:BuildProduct"
_BUILD: Final = "docker:index/image:Image"
_SIGNATURE: Final = "pulumi-python:dynamic/image:Signature"
_REPOSITORY: Final = "aws:ecr/repository:Repository"
_IMMUTABLE: Final = ("IMMUTABLE", "IMMUTABLE_WITH_EXCLUSION")
"""Amazon ECR user guide, "Preventing image tags from being overwritten"."""
_MACHINES: Final = ("aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/instance:Instance")
_SUMMERWIND: Final = re.compile(r"kubernetes:actions\.summerwind\.dev/v1alpha1:Runner(Deployment|ReplicaSet|Set)?")
"""Runners of the older controller, ephemeral unless a spec says otherwise (actions/actions-runner-controller,
docs/deploying-arc-runners.md)."""
_LASTING: Final = re.compile(r"kubernetes:(apps/v1:(Deployment|StatefulSet|DaemonSet)|core/v1:Pod)")
_RUNNER: Final = re.compile(r"(^|/)(actions-)?runner(:|@|$)")
"""GitHub's image of a runner, ghcr.io/actions/actions-runner, and summerwind/actions-runner."""
_OF_PLATFORM: Final = re.compile(r"-(amd64|arm64)$")
"""What the name of one platform's image ends with; the budget is of the name without it."""
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


class Resource(NamedTuple):
    """A resource of a stack; what a preview does not know of its properties is None. ``parent`` is its parent's URN."""

    type: str
    urn: str
    name: str
    props: Mapping[str, Any]
    parent: str = ""


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
    """Yield the images that are pushed, without build products."""
    skipped = {resource.parent for resource in resources if resource.type == _BUILD and resource.props.get("skipPush")}
    yield from (resource for resource in resources if resource.type == _IMAGE and resource.urn not in skipped)


def _unlocked_parents(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    for resource in resources:
        if resource.type not in {_IMAGE, _PRODUCT}:
            continue
        for name, value in (resource.props.get("args") or {}).items():
            if name.endswith("_IMAGE") and value and value != "scratch" and not _DIGEST.search(str(value)):
                yield Violation(
                    resource.urn, f"{resource.name}: {name} is {value}, whose tag may move: run `slipway lock`"
                )


def _unsigned(resources: Sequence[Resource], _: Settings) -> Iterator[Violation]:
    signed = {resource.parent for resource in resources if resource.type == _SIGNATURE}
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
        mutability = resource.props.get("imageTagMutability")
        if resource.type == _REPOSITORY and mutability not in _IMMUTABLE:
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
    if _LASTING.fullmatch(resource.type) and any(map(_RUNNER.search, _containers(props.get("spec")))):
        return f"it runs GitHub's runner as a {resource.type.rpartition(':')[2]}, which takes job after job"
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
