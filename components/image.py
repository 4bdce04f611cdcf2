"""``ImageVariant``: one image of a plan as a ``docker.Image`` whose changes a preview shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.image_checks import Checks, ChecksArgs, build
from components.reached_engine import ReachedEngine
from components.registry.interface import PushLogin, Registry
from components.update_settings import is_embedded
from containers.registry.reference import Reference, hexadecimal
from stacks.placement import PlacedImage, Reuse
from stacks.spec import CHECKED_ARG, PRODUCT_ARG


@dataclass(frozen=True)
class ImageVariantArgs:
    """The arguments of an :class:`ImageVariant`.

    ``placed`` is the image and what happens to it. ``reached`` is how this machine reaches its engine, which holds an
    unpushed image. ``parents`` has, by name, the sibling images whose references become arguments of the image or its
    checks. ``after`` are the resources that must exist before the build. ``pulled`` has the images of other stacks by
    digest, by argument.
    """

    placed: PlacedImage
    registry: Registry
    reached: ReachedEngine = field(default_factory=ReachedEngine)
    parents: Mapping[str, ImageVariant] = field(default_factory=dict)
    after: Sequence[pulumi.Resource] = ()
    pulled: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)


class ImageVariant(pulumi.ComponentResource):
    """One image: built, pushed unless the registry says not to, checked, and known by its digest.

    An image with checks is pushed under a name that nothing refers to. It gets its tag after its checks passed and
    everything in it loads, and whatever uses the image waits for that. So the checks run on what is published,
    whichever engine builds it, and a changed check runs on the published image. An image that is not pushed is checked,
    inspected and scanned on its engine. A product that is taken from the registry is checked too: its tag says that it
    passed the checks of the day.

    Its inputs are the image's contents in a reader's terms, so that a preview shows an argument's old and new value
    and a changed file's name; the bare ``docker.Image`` shows neither. A product has a type of its own, by which a
    preview tells it from an image.
    """

    ref: pulumi.Output[str]
    """``repository@sha256:...`` once pushed; the bare image id, ``sha256:...``, when nothing is pushed.

    It is known after the image's checks.
    """

    digest: pulumi.Output[str]
    """``sha256:...``: the manifest's digest once pushed, else the image's id."""

    tag: str
    """The image's tag."""

    name: str
    """``repository:tag``."""

    parents: Mapping[str, pulumi.Output[str]]
    """The images of this stack and of others that it stands on or copies from, by digest, by argument."""

    loading: pulumi.Output[dict[str, Any]] | None = None
    """What the inspection of an image says, as evidence; None for an image that is not inspected."""

    scan: pulumi.Output[dict[str, Any]] | None = None
    """The record of the scan of an image for vulnerabilities; None for an image that is not scanned."""

    def __init__(self, name: str, args: ImageVariantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        image, placed = args.placed.image, args.placed
        kind = "BuildProduct" if image.spec.product else "ImageVariant"
        super().__init__(f"slipway:image:{kind}", name, dict(image.contents), opts)
        self.tag = image.tag
        self.name = image.reference
        login = args.registry.login([parent.ref for parent in args.parents.values()])
        parents = {argument: args.parents[sibling] for argument, sibling in image.siblings.items()}
        named = {key: (parent.ref, parent.name) for key, parent in parents.items()}
        self.parents = {**args.pulled, **{argument: parent.ref for argument, parent in parents.items()}}
        build_args = {**image.args, **args.pulled, **_references(named, pushed=placed.pushed)}
        if placed.reuse:
            build_args[PRODUCT_ARG] = self._published(name, args, login, placed.reuse)
        built = self._built(name, args, build_args, login)
        self.ref = self._checked(name, args, built) if image.content.checks or placed.gates else built
        self.digest = self.ref.apply(lambda ref: Reference.of(ref).digest or ref)
        self.register_outputs({"ref": self.ref, "digest": self.digest, "tag": self.tag})

    def _built(
        self, name: str, args: ImageVariantArgs, build_args: Mapping[str, pulumi.Input[str]], login: PushLogin
    ) -> pulumi.Output[str]:
        """Declare the build, and the push that the docker provider does not make. Return the reference."""
        placed, registry = args.placed, args.registry
        level = None if is_embedded() else placed.level
        below = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        push = placed.pushed and level is None
        content, built_as = placed.image.content, placed.built_as
        built = build(name, built_as, content, build_args, registry, login, push=push, opts=below).repo_digest
        if level is None:
            return built
        from components.registry.compressed_push import CompressedPush, CompressedPushArgs  # noqa: PLC0415 - as below

        # After the build: a login from before it may have expired.
        pushed = CompressedPushArgs(built, built_as, level, args.reached, registry.login([built]))
        return CompressedPush(f"{name}-push", pushed, pulumi.ResourceOptions(parent=self)).pushed

    def _checked(self, name: str, args: ImageVariantArgs, ref: pulumi.Output[str]) -> pulumi.Output[str]:
        """Declare the checks of the image ``ref``, if it has any, and its tag. Return ``ref``, known after these."""
        placed, image = args.placed, args.placed.image
        checks, gates = image.content.checks, placed.gates
        below = pulumi.ResourceOptions(parent=self)
        login = args.registry.login([ref])  # after the push: a login from before the build may have expired
        checked = ref.apply(hexadecimal)
        if checks:
            parents = {key: args.parents[sibling] for key, sibling in checks.siblings.items() if key != CHECKED_ARG}
            named = {key: (parent.ref, parent.name) for key, parent in parents.items()}
            references = _references({CHECKED_ARG: (ref, self.name), **named}, pushed=placed.pushed)
            pulled = {argument: other for argument, other in args.pulled.items() if argument in image.checks_args}
            of_checks = ChecksArgs(image, checks, ref, {**pulled, **references}, args.registry, login)
            checked = Checks(f"{name}-checks", of_checks, below).checked
        if not placed.pushed:
            passed = pulumi.Output.all(ref, checked).apply(lambda values: str(values[0]))
            if not gates:
                return passed
            from components.supply_chain.gates.unpushed_image import UnpushedImage, UnpushedImageArgs  # noqa: PLC0415 - as below

            unpushed = UnpushedImageArgs(passed, self.name, image.spec.platform, args.reached, gates)
            return UnpushedImage(f"{name}-inspection", unpushed, below).ref
        from components.supply_chain.checked_tag import CheckedTag, CheckedTagArgs  # noqa: PLC0415 - not all images have checks

        tagged = CheckedTag(f"{name}-tag", CheckedTagArgs(ref, checked, self.tag, login, gates), below)
        if gates.exceptions is not None:
            self.loading = tagged.loading
        if gates.vulnerabilities is not None:
            self.scan = tagged.scan
        return tagged.ref

    def _published(self, name: str, args: ImageVariantArgs, login: PushLogin, reuse: Reuse) -> pulumi.Output[str]:
        """Return the argument that makes a product's Dockerfile copy the published product instead of building."""
        from components.supply_chain.published_product import Published, PublishedArgs  # noqa: PLC0415 - no other stack should pay for it

        needed, annotations = args.placed.needs_registry, args.placed.image.annotations
        product = PublishedArgs(self.name, login, needed, reuse.signer, trusted=reuse.trusted, annotations=annotations)
        return Published(f"{name}-published", product, pulumi.ResourceOptions(parent=self)).found


def _references(images: Mapping[str, tuple[pulumi.Output[str], str]], *, pushed: bool) -> dict[str, pulumi.Input[str]]:
    """Return the arguments that name images of this stack, given by reference and by name.

    A pushed image is named by its digest, by a stack that pushes nothing too: a preview of a pull request has it from
    the public record. An unpushed image has only an id, which BuildKit cannot use in ``FROM``: it is named by its local
    name. Its id is a further argument, which no Dockerfile reads: so a new image still changes its children.
    """
    if pushed:
        return {argument: ref for argument, (ref, _) in images.items()}
    usable: dict[str, pulumi.Input[str]] = {
        argument: pulumi.Output.all(ref, name).apply(lambda both: both[0] if "@" in both[0] else both[1])
        for argument, (ref, name) in images.items()
    }
    return usable | {f"{argument}_ID": ref for argument, (ref, _) in images.items()}
