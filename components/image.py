"""``ImageVariant``: one image of a plan as a ``docker.Image`` whose changes a preview shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulumi
import pulumi_docker as docker

from components.image_checks import Checks, ChecksArgs, access, build_inputs
from components.reached_engine import ReachedEngine
from components.registry.interface import PushLogin, Registry
from containers.registry.reference import Reference, hexadecimal
from stacks.identity.content import Content
from stacks.placement import PlacedImage
from stacks.spec import CHECKED_ARG, PRODUCT_ARG


@dataclass(frozen=True)
class ImageVariantArgs:
    """The arguments of an :class:`ImageVariant`.

    ``placed`` is the image and what happens to it. ``reached`` is how this machine reaches its engine, which holds an
    image that is not pushed. ``parents`` has, by name, the sibling images whose references become arguments of the
    image or its checks. ``after`` are the resources that must exist before the build.
    """

    placed: PlacedImage
    registry: Registry
    reached: ReachedEngine = field(default_factory=ReachedEngine)
    parents: Mapping[str, ImageVariant] = field(default_factory=dict)
    after: Sequence[pulumi.Resource] = ()


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
        references = _references(named, pushed=placed.pushed)
        built = docker.Image(
            name,
            image_name=placed.built_as,
            build=build_inputs(image.content, {**image.args, **references, **self._published(name, args, login)}),
            registry=access(args.registry, login),
            skip_push=not placed.pushed,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after)),
        )
        self.ref = self._checked(name, args, built.repo_digest)
        self.digest = self.ref.apply(lambda ref: Reference.of(ref).digest or ref)
        self.register_outputs({"ref": self.ref, "digest": self.digest, "tag": self.tag})

    def _checked(self, name: str, args: ImageVariantArgs, ref: pulumi.Output[str]) -> pulumi.Output[str]:
        """Declare the checks of the image ``ref``, if it has any, and its tag. Return ``ref``, known after these."""
        placed, image = args.placed, args.placed.image
        content, gates = image.content.checks, placed.gates
        if content is None and not gates:
            return ref
        below = pulumi.ResourceOptions(parent=self)
        login = args.registry.login([ref])  # after the push: a login from before the build may have expired
        checked = self._run_checks(name, args, ref, login, content) if content else ref.apply(hexadecimal)
        if not placed.pushed:
            passed = pulumi.Output.all(ref, checked).apply(lambda values: str(values[0]))
            if not gates:
                return passed
            from components.supply_chain.gates.unpushed_image import UnpushedImage, UnpushedImageArgs  # noqa: PLC0415 - as below

            spec = image.spec
            unpushed = UnpushedImageArgs(
                passed,
                self.name,
                spec.platform,
                args.reached,
                gates.exceptions,
                spec.compiled,
                gates.policy,
                gates.question,
            )
            return UnpushedImage(f"{name}-inspection", unpushed, below).ref
        from components.supply_chain.checked_tag import CheckedTag, CheckedTagArgs  # noqa: PLC0415 - not all images have checks

        tag = CheckedTagArgs(
            ref, checked, self.tag, login, gates.exceptions, gates.policy, image.spec.compiled, gates.question
        )
        tagged = CheckedTag(f"{name}-tag", tag, below)
        if gates.exceptions is not None:
            self.loading = tagged.loading
        if gates.policy is not None:
            self.scan = tagged.scan
        return tagged.ref

    def _run_checks(
        self, name: str, args: ImageVariantArgs, ref: pulumi.Output[str], login: PushLogin, content: Content
    ) -> pulumi.Output[str]:
        """Declare the checks of the image ``ref``. Return the hexadecimal part of the digest that they passed."""
        image, pushed = args.placed.image, args.placed.pushed
        images = {
            argument: (ref, self.name)
            if argument == CHECKED_ARG
            else (args.parents[sibling].ref, args.parents[sibling].name)
            for argument, sibling in content.siblings.items()
        }
        references = _references(images, pushed=pushed)
        below = pulumi.ResourceOptions(parent=self)
        return Checks(
            f"{name}-checks", ChecksArgs(image, content, ref, references, args.registry, login), below
        ).checked

    def _published(self, name: str, args: ImageVariantArgs, login: PushLogin) -> dict[str, pulumi.Input[str]]:
        """Return the argument that makes a product's Dockerfile copy the published product instead of building."""
        reuse = args.placed.reuse
        if reuse is None:
            return {}
        from components.supply_chain.published_product import Published, PublishedArgs  # noqa: PLC0415 - no other stack should pay for it

        needed, annotations = args.placed.needs_registry, args.placed.image.annotations
        product = PublishedArgs(self.name, login, needed, reuse.signer, trusted=reuse.trusted, annotations=annotations)
        published = Published(f"{name}-published", product, pulumi.ResourceOptions(parent=self))
        return {PRODUCT_ARG: published.found}


def _references(images: Mapping[str, tuple[pulumi.Output[str], str]], *, pushed: bool) -> dict[str, pulumi.Input[str]]:
    """Return the arguments that name images of this stack, given by reference and by name.

    A pushed image is named by its digest, by a stack that pushes nothing too: a preview of a pull request has it from
    the public record. An image that is not pushed has only an id, which BuildKit cannot use in ``FROM``: it is named by
    its local name, and its id is a further argument, which no Dockerfile reads, so that a new image still changes what
    is built on it.
    """
    result: dict[str, pulumi.Input[str]] = {}
    for argument, (ref, name) in images.items():
        if pushed:
            result[argument] = ref
        else:
            result[argument] = ref.apply(partial(_usable, name))
            result[f"{argument}_ID"] = ref
    return result


def _usable(name: str, ref: str) -> str:
    return ref if "@" in ref else name
