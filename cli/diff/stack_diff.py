"""A stack's images as it last published them, beside what would be built now."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cli.diff.comparison import Comparison, compare
from oci import credentials
from oci.client import Repository
from oci.credentials import Login
from oci.registry_image import Image, fetch
from stacks import differences, plan
from stacks.errors import SlipwayError, one_line
from stacks.plan import Plan, PlannedImage
from stacks.spec import Outside

State = Literal["unchanged", "changed", "new"]


@dataclass(frozen=True)
class Change:
    """One thing that an image is made of and that differs: ``what`` names it, such as ``args TORCH_VERSION``."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ImageDiff:
    """One image of a stack: as it was published, and as it would be built.

    ``planned`` is the name that it would have. ``content`` compares the images themselves, where the registry has
    the planned one already. ``newest`` is the image that there is: the planned one, else the published one.
    ``base`` says how the image that it stands on has moved since.
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
        """Return it as JSON has it, what it compares as that has it; sizes in bytes."""
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
class StackDiff:
    """A stack's images, parents before children, and the names of those that it builds no more."""

    stack: str
    images: tuple[ImageDiff, ...]
    removed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it, its images as they have it."""
        return {"stack": self.stack, "images": self.images, "removed": self.removed}


def diff(
    stack: str,
    root: Path,
    image: str | None = None,
    *,
    thorough: bool = False,
    before: Mapping[str, Any] | None = None,
) -> StackDiff:
    """Compare what a stack last published with what would be built now; with ``image``, of that one only.

    ``before`` are the stack's outputs as of then; default: as Pulumi's state has them.

    Raises:
        SlipwayError: there is no such stack or image, Pulumi or a registry cannot be asked, or what was published is
            there no more.
    """
    planned = plan.make(stack, root=root)
    names = [each.spec.name for each in planned.images]
    if image is not None:
        planned.image(image)
    there = _Published(outputs(stack, root) if before is None else before)
    images = [_image(each, planned, there, thorough) for each in planned.images if image in {None, each.spec.name}]
    removed = [name for name in there.images if name not in names] if image is None else []
    return StackDiff(stack, tuple(images), tuple(removed))


class _Published:
    """The outputs of a stack."""

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        self.images: Mapping[str, Mapping[str, str]] = {**outputs.get("images", {}), **outputs.get("products", {})}
        self._plans = outputs.get("plan", {})
        self._files = outputs.get("planFiles", {})

    def made_of(self, name: str, dockerfile: str) -> dict[str, Any]:
        """Return what an image was made of, as :func:`stacks.differences.shown` has it."""
        return {**self._plans.get(name, {}), "files": differences.listed_files(self._files.get(dockerfile, {}))}


def outputs(stack: str, root: Path) -> dict[str, Any]:
    """Return a stack's outputs; none where it has no state yet.

    Raises:
        SlipwayError: Pulumi cannot say.
    """
    words = ["pulumi", "stack", "output", "--json", "--stack", stack, "--non-interactive"]
    try:
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise SlipwayError(
            f"pulumi, which knows what was published, cannot be run: {error.strerror}; `. .slipway/env` first"
        ) from None
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    said = next((line for line in done.stderr.splitlines() if line.startswith("error:")), done.stderr)
    if "no stack named" in said:
        return {}
    raise SlipwayError(f"stack {stack}: pulumi cannot say what was published: {one_line(said.strip(), 240)}")


def _image(image: PlannedImage, planned: Plan, there: _Published, thorough: bool) -> ImageDiff:
    spec = image.spec
    was = there.images.get(spec.name)
    login = credentials.configured(planned.config.registry)
    changes: Sequence[Change] = ()
    published = later = content = None
    if was is not None:
        before, after = there.made_of(spec.name, spec.dockerfile), image.contents
        changes = [_change(*found) for found in differences.differences(before, after)]
        if "@" in was["ref"] and not spec.product:
            published = fetch(was["ref"], login)
            if was["ref"].partition("@")[0] != image.repository:
                changes = [Change("repository", was["ref"].partition("@")[0], image.repository), *changes]
    state: State = "new" if was is None else "changed" if changes else "unchanged"
    if published and changes and planned.config.publish and Repository(image.reference, login).visible_digest():
        later = fetch(image.reference, login)
        content = compare(published, later, thorough=thorough)
    return ImageDiff(
        spec.name,
        spec.product,
        tuple(dict.fromkeys(image.siblings.values())),
        state,
        image.reference,
        tuple(changes),
        _base(image, published, login) if published else None,
        later or published,
        content,
        planned.config.budgets.get(spec.name),
    )


def _change(way: tuple[str, ...], before: Any, after: Any) -> Change:
    return Change(" ".join(way), *(None if value is None else str(value) for value in (before, after)))


def _base(image: PlannedImage, published: Image, login: Login | None) -> str | None:
    """Say that the outside image that a published one stands on is another one by now, or why that is not known.

    A tag is looked up; of a digest, what it was is among the arguments that changed.
    """
    parent = image.spec.parents.get("BASE_IMAGE")
    reference = image.args.get("BASE_IMAGE", "")
    if not isinstance(parent, Outside) or parent.digest or "@" in reference or reference == "scratch":
        return None
    try:
        base = fetch(reference, login, image.spec.platform)
    except SlipwayError as error:  # it need not be within reach: the engine pulls it
        return f"cannot be looked up: {error}"
    if published.diff_ids[: len(base.layers)] == base.diff_ids:
        return None
    return f"{reference} has moved: it is {base.digest} now, and the published image stands on another"
