"""``ImageVariant``: one image of a plan as a ``docker.Image``, in terms that a preview can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_docker as docker

from components.registry.interface import Login, Registry
from stacks.config.signing import Signer
from stacks.differences import shown
from stacks.spec import PRODUCT_ARG


@dataclass(frozen=True)
class ImageVariantArgs:
    """What an :class:`ImageVariant` is made of.

    ``repository`` and ``tag`` name the image; ``context`` and ``dockerfile`` are relative to the program's folder,
    because ``docker.Image`` compares them literally. ``args`` are the build arguments known beforehand, ``labels``
    those that carry the image's labels, ``parents`` the sibling images whose reference becomes an argument, and
    ``files`` the context's files with their SHA-256. A ``product`` is mounted by other builds and not run; one that is
    there already is taken if it has the signature of ``signer``, where there is one, and the registry is ``needed`` to
    say so, unless nothing is pushed there from here. ``after`` is what must have succeeded before it is built.
    """

    repository: str
    tag: str
    context: str
    dockerfile: str
    platform: str
    args: Mapping[str, str]
    labels: Mapping[str, str]
    files: Mapping[str, str]
    registry: Registry
    target: str | None = None
    product: bool = False
    needed: bool = True
    signer: Signer | None = None
    parents: Mapping[str, ImageVariant] = field(default_factory=dict)
    after: Sequence[pulumi.Resource] = ()


class ImageVariant(pulumi.ComponentResource):
    """One image: built, pushed unless the registry says not to, and known by its digest.

    Its own inputs are the arguments, parents and files as a reader knows them, so that a preview shows an argument's
    old and new value and a changed file's name; the bare ``docker.Image`` shows neither. A product has a type of its
    own, by which a preview tells it from an image.
    """

    ref: pulumi.Output[str]
    """``repository@sha256:...`` once pushed; the bare image id, ``sha256:...``, when nothing is pushed."""

    digest: pulumi.Output[str]
    """``sha256:...``: the manifest's digest once pushed, else the image's id."""

    tag: str
    """The tag the image is built under."""

    name: str
    """``repository:tag``."""

    plan: dict[str, Any]
    """What the image is made of, as a preview compares it: all of it known before anything is built."""

    def __init__(self, name: str, args: ImageVariantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self.plan = shown(
            args=args.args,
            files=args.files,
            labels=args.labels,
            parents={argument: parent.name for argument, parent in args.parents.items()},
            platform=args.platform,
            tag=args.tag,
            target=args.target,
        )
        kind = "BuildProduct" if args.product else "ImageVariant"
        super().__init__(f"slipway:image:{kind}", name, self.plan, opts)
        self.tag = args.tag
        self.name = f"{args.repository}:{args.tag}"
        login = args.registry.login([parent.ref for parent in args.parents.values()])
        image = docker.Image(
            name,
            image_name=self.name,
            build=docker.DockerBuildArgs(
                context=args.context,
                dockerfile=args.dockerfile,
                platform=args.platform,
                target=args.target,
                args={**args.args, **args.labels, **_parent_args(args), **self._published(name, args, login)},
            ),
            registry=docker.RegistryArgs(server=args.registry.server, username=login.username, password=login.password),
            skip_push=not args.registry.publish,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after)),
        )
        self.ref = image.repo_digest
        self.digest = image.repo_digest.apply(lambda ref: ref.rpartition("@")[2])
        self.register_outputs({"ref": self.ref, "digest": self.digest, "tag": self.tag})

    def _published(self, name: str, args: ImageVariantArgs, login: Login) -> dict[str, pulumi.Input[str]]:
        """Return the argument by which a product's Dockerfile takes what the registry has of it, and builds nothing."""
        if not args.product:
            return {}
        from components.supply_chain.published_product import Published, PublishedArgs  # noqa: PLC0415 - no other stack should pay for it

        asking = PublishedArgs(self.name, login, args.needed, args.signer)
        asked = Published(f"{name}-published", asking, pulumi.ResourceOptions(parent=self))
        return {PRODUCT_ARG: asked.found}


def _parent_args(args: ImageVariantArgs) -> dict[str, pulumi.Input[str]]:
    """Return the arguments that name sibling images.

    A pushed parent is named by its digest. One that is not pushed has only an image id, which BuildKit cannot use in
    ``FROM``: it is named by its local name, and its id stands beside it as an argument that no Dockerfile
    reads, so that the child still follows it.
    """
    result: dict[str, pulumi.Input[str]] = {}
    for argument, parent in args.parents.items():
        if args.registry.publish:
            result[argument] = parent.ref
        else:
            result[argument] = parent.name
            result[f"{argument}_ID"] = parent.ref
    return result
