"""The build of an image, and ``Checks``: an image's checks, a build that starts from the finished image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_docker as docker

from components.registry.interface import PushLogin, Registry
from containers.registry.reference import Reference, hexadecimal
from stacks.identity import staged_context
from stacks.identity.content import Content
from stacks.plan import PlannedImage


def build(
    name: str,
    image_name: pulumi.Input[str],
    content: Content,
    args: Mapping[str, pulumi.Input[str]],
    registry: Registry,
    login: PushLogin,
    *,
    push: bool,
    opts: pulumi.ResourceOptions,
) -> docker.Image:
    """Declare a build from the folder that has its content."""
    given: Any = docker.RegistryArgs(server=registry.server, username=login.username, password=login.password)
    if login.short_lived:  # a key of the embedded provider alone, so it is in no class
        given = {"server": registry.server, "username": login.username, "password": login.password, "shortLived": True}
    return docker.Image(
        name,
        image_name=image_name,
        build=docker.DockerBuildArgs(
            # Relative to the program's folder, because docker.Image compares them literally.
            context=content.folder,
            dockerfile=f"{content.folder}/{staged_context.DOCKERFILE}",
            platform=content.spec.platform,
            target=content.spec.target,
            args={**args, **content.label_args},
        ),
        registry=given,
        skip_push=not push,
        opts=opts,
    )


@dataclass(frozen=True)
class ChecksArgs:
    """The arguments of :class:`Checks`.

    ``content`` is what the checks' build reads. ``ref`` is the image to check: ``repository@sha256:...`` once pushed,
    else its bare id. ``parents`` has the build arguments that name the image and its siblings.
    """

    image: PlannedImage
    content: Content
    ref: pulumi.Output[str]
    parents: Mapping[str, pulumi.Input[str]]
    registry: Registry
    login: PushLogin


class Checks(pulumi.ComponentResource):
    """The checks of one image. Their build starts from the image, and its result stays on the engine.

    The component's inputs are the files of the checks outside the image, so that a preview names the changed check. The
    image has none of them, so its tag stays.
    """

    checked: pulumi.Output[str]
    """The hexadecimal part of the digest, or the id, of the image that passed. The state of the last checks has it."""

    def __init__(self, name: str, args: ChecksArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        image = args.image
        super().__init__("slipway:checks:Checks", name, dict(image.checks_contents), opts)
        # No image of a stack has an underscore in its name. The name is the one output with the checked image.
        image_name = args.ref.apply(lambda ref: f"{image.repository}_checks:{hexadecimal(ref)}")
        build_args, below = {**image.checks_args, **args.parents}, pulumi.ResourceOptions(parent=self)
        built = build(name, image_name, args.content, build_args, args.registry, args.login, push=False, opts=below)
        self.checked = built.image_name.apply(lambda checked: Reference.of(checked).tag)
        self.register_outputs({"checked": self.checked})
