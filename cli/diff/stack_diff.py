"""The differences between a stack's published images and its planned ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cli.diff.comparison import Comparison, compare
from cli.pulumi_command import run_pulumi
from containers.errors import SlipwayError, one_line, suggest
from containers.image.registry_image import Image, fetch
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from containers.registry.reference import Reference
from stacks import differences, plan
from stacks.differences import platform_parts
from stacks.identity import file_texts
from stacks.plan import Plan, PlannedImage
from stacks.spec import Outside

State = Literal["unchanged", "changed", "new"]


@dataclass(frozen=True)
class Change:
    """One input of an image that differs: ``what`` is its name, such as ``args TORCH_VERSION``.

    ``lines`` are the changed ones of a file whose texts are known here (:func:`stacks.differences.changed_lines`).
    """

    what: str
    before: str | None
    after: str | None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageDiff:
    """One image of a stack: the published one and the planned one.

    ``planned`` is the planned reference. ``content`` compares both images if the registry has the planned one.
    ``newest`` is the planned image, if it exists, else the published one. ``base`` describes a moved base image.
    """

    name: str
    product: bool
    parents: tuple[str, ...]
    state: State
    planned: str
    changes: tuple[Change, ...]
    base: str | None
    newest: Image | None
    content: Comparison | None
    budget: int | None

    @property
    def over(self) -> bool:
        """Whether it is larger than its budget."""
        return self.budget is not None and self.newest is not None and self.newest.size > self.budget

    def as_json(self) -> dict[str, Any]:
        """Return the diff as JSON, with sizes in bytes; ``content`` stays a comparison."""
        return {
            "name": self.name,
            "product": self.product,
            "parents": list(self.parents),
            "state": self.state,
            "planned": self.planned,
            "changes": [vars(change) for change in self.changes],
            "base": self.base,
            "size": self.newest.size if self.newest else None,
            "budget": self.budget,
            "content": self.content,
        }


@dataclass(frozen=True)
class IndexDiff:
    """The index of an image's platforms: the published one and the planned one.

    ``published`` is its digest, None if none was. ``tagged`` is what the published tag names today, None for nothing.
    """

    name: str
    state: State
    planned: str
    published: str | None
    tagged: str | None

    @property
    def moved(self) -> bool:
        """Whether somebody has moved or deleted the published tag."""
        return self.published != self.tagged

    def as_json(self) -> dict[str, Any]:
        """Return the diff as JSON."""
        return vars(self)


@dataclass(frozen=True)
class StackDiff:
    """A stack's images, parents before children, its indexes, and the names of published images no longer built."""

    stack: str
    images: tuple[ImageDiff, ...]
    removed: tuple[str, ...]
    indexes: tuple[IndexDiff, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the diff as JSON; its images and indexes stay objects with an ``as_json`` of their own."""
        return {"stack": self.stack, "images": self.images, "indexes": self.indexes, "removed": self.removed}


def diff(
    stack: str,
    root: Path,
    image: str | None = None,
    platform: str | None = None,
    *,
    thorough: bool = False,
    inspect: bool = False,
    before: Mapping[str, Any] | None = None,
) -> StackDiff:
    """Compare the last published images of a stack, or only ``image``, with the planned ones.

    ``image`` may be the name of an index, and ``platform`` one of its platforms. ``thorough`` and ``inspect`` are as
    for a comparison. ``before`` are the stack's outputs; by default they come from Pulumi's state.

    Raises SlipwayError: there is no such stack or image, Pulumi or a registry fails, or a published image was deleted.
    """
    planned = plan.make(stack, root=root)
    names = [each.spec.name for each in planned.images]
    selected = planned.select(image, platform)
    before = outputs(stack, root) if before is None else before
    compared = partial(compare, thorough=thorough, inspect=inspect)
    published = {**platform_parts(before.get("images", {})), **before.get("products", {})}
    images = [_image(each, planned, before, published.get(each.spec.name), compared, root) for each in selected]
    removed = [name for name in published if name not in names] if image is platform is None else []
    indexes = [_index(each, planned, before) for each in planned.indexes if image in {None, each} and platform is None]
    return StackDiff(stack, tuple(images), tuple(removed), tuple(indexes))


def published_images(stack: str, root: Path, image: str | None, platforms: Iterable[str]) -> list[Image]:
    """Return what a stack last published of an image for each of the platforms; without a name, of its last image.

    Raises SlipwayError: there is no such stack, image or platform, nothing is published, or Pulumi or a registry fails.
    """
    planned = plan.make(stack, root=root)
    names = [planned.image(image, platform).spec.name for platform in platforms]
    published = platform_parts(outputs(stack, root).get("images", {}))
    login = stack_login.configured(planned.config.registry)
    return [fetch(pushed(stack, published, name)[name]["ref"], login) for name in names]


def pushed(
    stack: str, images: Mapping[str, Mapping[str, Any]], image: str | None = None
) -> dict[str, Mapping[str, Any]]:
    """Return those of a stack's published ``images``, from its outputs, that are in a registry.

    Raises SlipwayError: none is, or ``image`` is not among them.
    """
    result = {name: built for name, built in images.items() if "@" in built.get("ref", "")}
    if not result:
        raise SlipwayError(f"stack {stack} has published nothing yet: `slipway up {stack}`")
    if image is not None and image not in result:
        raise SlipwayError(
            f"stack {stack} has published no image '{one_line(image)}'{suggest(image, result)}; "
            f"it has: {', '.join(result)}"
        )
    return result


def outputs(stack: str, root: Path) -> dict[str, Any]:
    """Return a stack's outputs; empty if it has no state. Raises SlipwayError: Pulumi fails."""
    completed = run_pulumi(["output", "--json"], stack, root, "the published outputs")
    if completed.returncode == 0:
        values: dict[str, Any] = json.loads(completed.stdout)
        return values
    message = next((line for line in completed.stderr.splitlines() if line.startswith("error:")), completed.stderr)
    if "no stack named" in message:
        return {}
    raise SlipwayError(f"stack {stack}: pulumi cannot read the published outputs: {one_line(message.strip(), 240)}")


def _image(
    image: PlannedImage,
    planned: Plan,
    outputs: Mapping[str, Any],
    built: Mapping[str, str] | None,
    compared: Callable[..., Comparison],
    root: Path,
) -> ImageDiff:
    """Compare a planned image with the one that is ``built`` in the outputs; None for none."""
    spec = image.spec
    login = stack_login.configured(planned.config.registry)
    changes: Sequence[Change] = ()
    published = newer = content = None
    if built is not None:
        before, after = differences.published_contents(outputs, spec.name), image.contents
        changes = [_change(*each, before, after, root) for each in differences.differences(before, after)]
        if "@" in built["ref"] and not spec.product:
            published = fetch(built["ref"], login)
            if Reference.of(built["ref"]).repository != image.repository:
                changes = [Change("repository", Reference.of(built["ref"]).repository, image.repository), *changes]
    state: State = "new" if built is None else "changed" if changes else "unchanged"
    if published and changes and planned.config.publish and Repository(image.reference, login).visible_digest():
        newer = fetch(image.reference, login)
        # What the published one was compiled for is known no more: both are held to what is compiled now.
        content = compared(published, newer, compiled=spec.compiled)
    return ImageDiff(
        spec.name,
        spec.product,
        tuple(dict.fromkeys(image.siblings.values())),
        state,
        image.reference,
        tuple(changes),
        _base(image, published, login) if published else None,
        newer or published,
        content,
        planned.config.budgets.get(spec.published_name),
    )


def _index(name: str, planned: Plan, outputs: Mapping[str, Any]) -> IndexDiff:
    reference = planned.references[name]
    built = outputs.get("images", {}).get(name, {})
    if "@" not in built.get("ref", "") or "platforms" not in built:  # an image of one platform is no index
        return IndexDiff(name, "new", reference, None, None)
    published = f"{Reference.of(built['ref']).repository}:{built['tag']}"
    tagged = Repository(published, stack_login.configured(planned.config.registry)).visible_digest()
    state: State = "unchanged" if published == reference else "changed"
    return IndexDiff(name, state, reference, built["digest"], tagged)


def _change(
    way: tuple[str, ...], old: Any, new: Any, before: Mapping[str, Any], after: Mapping[str, Any], root: Path
) -> Change:
    lines: list[str] = []
    if way[0] == "files" and old and new:
        lines = differences.changed_lines(*file_texts.both(way[1], (old, before), (new, after), root))
    published, now = (None if value is None else str(value) for value in (old, new))
    return Change(" ".join(way), published, now, tuple(lines))


def _base(image: PlannedImage, published: Image, login: Login | None) -> str | None:
    """Describe the move of a published image's base tag, or the failed lookup; None if the base is the same.

    Only a tag is looked up. A changed digest is among the changed arguments.
    """
    parent = image.spec.parents.get("BASE_IMAGE")
    reference = image.args.get("BASE_IMAGE", "")
    if not isinstance(parent, Outside) or parent.digest or "@" in reference or reference == "scratch":
        return None
    try:
        base = fetch(reference, login, image.spec.platform)
    except SlipwayError as error:  # only the engine may reach its registry
        return f"lookup failed: {error}"
    if published.diff_ids[: len(base.layers)] == base.diff_ids:
        return None
    return f"{reference} has moved to {base.digest}, and the published image is built on an older one"
