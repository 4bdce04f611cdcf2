"""``ImageVariant``: one image of a plan as a ``docker.Image`` whose changes a preview shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_docker as docker

from components.registry.interface import Login, Registry
from stacks.config.signing import Signer
from stacks.identity import staged_context
from stacks.plan import PlannedImage
from stacks.spec import PRODUCT_ARG


@dataclass(frozen=True)
class ImageVariantArgs:
    """The arguments of an :class:`ImageVariant`.

    ``image`` is the planned image. ``parents`` has the sibling images whose references become arguments. A product in
    the registry is reused instead of built; with a ``signer``, it must have that signature. ``needed`` says that the
    registry must answer; it is false if this machine pushes nothing. ``after`` are the resources that must exist before
    the build.
    """

    image: PlannedImage
    registry: Registry
    needed: bool = True
    signer: Signer | None = None
    parents: Mapping[str, ImageVariant] = field(default_factory=dict)
    after: Sequence[pulumi.Resource] = ()


class ImageVariant(pulumi.ComponentResource):
    """One image: built, pushed unless the registry says not to, and known by its digest.

    Its inputs are the image's contents in a reader's terms, so that a preview shows an argument's old and new value
    and a changed file's name; the bare ``docker.Image`` shows neither. A product has a type of its own, by which a
    preview tells it from an image.
    """

    ref: pulumi.Output[str]
    """``repository@sha256:...`` once pushed; the bare image id, ``sha256:...``, when nothing is pushed."""

    digest: pulumi.Output[str]
    """``sha256:...``: the manifest's digest once pushed, else the image's id."""

    tag: str
    """The tag the image is built under."""

    name: str
    """``repository:tag``."""

    def __init__(self, name: str, args: ImageVariantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        image = args.image
        kind = "BuildProduct" if image.spec.product else "ImageVariant"
        super().__init__(f"slipway:image:{kind}", name, dict(image.contents), opts)
        self.tag = image.tag
        self.name = image.reference
        login = args.registry.login([parent.ref for parent in args.parents.values()])
        built = docker.Image(
            name,
            image_name=self.name,
            build=docker.DockerBuildArgs(
                # Relative to the program's folder, because docker.Image compares them literally.
                context=image.content.folder,
                dockerfile=f"{image.content.folder}/{staged_context.DOCKERFILE}",
                platform=image.spec.platform,
                target=image.spec.target,
                args={
                    **image.args,
                    **image.content.label_args,
                    **_parent_args(args),
                    **self._published(name, args, login),
                },
            ),
            registry=docker.RegistryArgs(server=args.registry.server, username=login.username, password=login.password),
            skip_push=not args.registry.publish,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after)),
        )
        self.ref = built.repo_digest
        self.digest = built.repo_digest.apply(lambda ref: ref.rpartition("@")[2])
        self.register_outputs({"ref": self.ref, "digest": self.digest, "tag": self.tag})

    def _published(self, name: str, args: ImageVariantArgs, login: Login) -> dict[str, pulumi.Input[str]]:
        """Return the argument that makes a product's Dockerfile copy the published product instead of building."""
        if not args.image.spec.product:
            return {}
        from components.supply_chain.published_product import Published, PublishedArgs  # noqa: PLC0415 - no other stack should pay for it

        product = PublishedArgs(self.name, login, args.needed, args.signer)
        published = Published(f"{name}-published", product, pulumi.ResourceOptions(parent=self))
        return {PRODUCT_ARG: published.found}


def _parent_args(args: ImageVariantArgs) -> dict[str, pulumi.Input[str]]:
    """Return the arguments that name sibling images.

    A pushed parent is named by its digest. One that is not pushed has only an image id, which BuildKit cannot use in
    ``FROM``: it is named by its local name, and its id is a further argument, which no Dockerfile reads, so that
    a new parent still changes the child.
    """
    result: dict[str, pulumi.Input[str]] = {}
    for argument, parent in args.parents.items():
        if args.registry.publish:
            result[argument] = parent.ref
        else:
            result[argument] = parent.name
            result[f"{argument}_ID"] = parent.ref
    return result
