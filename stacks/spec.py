"""An image as data, and the graph of a stack's images: parents before children."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from containers.errors import SlipwayError, one_line
from containers.image.gpu.release_order import line
from stacks.places import code
from stacks.tags import Suffix
from stacks.versions.cuda_toolkit import DRIVER_LABEL, least_driver

CONTEXT = "dockerfiles"
"""The build context of Slipway's own images, relative to its code; each Dockerfile's ignore file narrows it."""

PRODUCT_ARG = "PRODUCT_IMAGE"
"""Build argument of every product's Dockerfile: the published product by digest. The build copies it instead of
compiling."""

CHECKED_ARG = "CHECKED_IMAGE"
"""Build argument of the target ``checks``: the image to check. By default it is a stage of the same Dockerfile."""

USER_ARG = "RUN_AS"
"""Build argument of an image that runs as its parent's user, whoever that is: what the parent's ``USER`` says."""

LABEL_PREFIX = "org.opencontainers.image."
"""Prefix of an image's labels (OCI image specification, annotations)."""

_LABEL_ARG = "LABEL_"
"""Prefix of the build arguments that carry labels."""


def context_path(folder: str, root: Path) -> Path:
    """Return where a build context is; ``folder`` is its name in a plan, and ``root`` the repository."""
    return (code(root) if folder == CONTEXT else root) / folder


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Outside(_Frozen):
    """A parent that others publish. ``reference`` is public; a build may pull it from a mirror.

    ``digest`` is the tag's digest in the lock, ``sha256:...``.
    """

    reference: str
    digest: str | None = None


class Sibling(_Frozen):
    """A parent that the same stack builds."""

    image: str


class Elsewhere(_Frozen):
    """A parent that another stack of the checkout builds and publishes.

    ``specs`` are that stack's images, as the lock pins them. ``repository`` is where it publishes the parent, and
    ``signer`` is its signer as YAML has it, if it signs. Only a plan knows ``published``, the parent's name
    there with its tag, and ``annotations``, what its signature states.
    """

    stack: str
    image: str
    repository: str = Field("", exclude=True)
    signer: Mapping[str, Any] | None = Field(None, exclude=True)
    specs: tuple[ImageSpec, ...] = Field((), exclude=True, repr=False)
    published: str = Field("", exclude=True)
    annotations: Mapping[str, str] = Field(default_factory=dict, exclude=True)

    @property
    def reference(self) -> str:
        """The parent as ``images[].on`` names it."""
        return f"{self.stack}/{self.image}"


Parent = Outside | Sibling | Elsewhere


class Branch(_Frozen):
    """A branch of a repository (owner/name on GitHub), which the lock turns into a commit."""

    repository: str
    name: str


class Packages(_Frozen):
    """The packages that an image installs from Python indexes, if all of them are known before the build.

    ``requirements`` and ``constraints`` are pip's, ``pythons`` the versions that the image's Python may have. ``glibc``
    is the version of its C library; None where the parent decides both. ``torch_index`` is the index of torch, where it
    is not the Python index. ``files`` are those that the lock has: the SHA-256 of each, by its address.

    Of the stack's own builds, ``requirements`` has the published release, with its own requirements. ``built`` names
    it, as its files are not installed. ``overrides`` are requirements that count in place of its own. ``listed`` is a
    file of requirements in a git source, ``owner/name tag path``. ``sdists`` names packages without a wheel that
    require nothing: pip builds their source distribution with what else is locked. ``onto`` are the packages of the
    parent, none of which may be replaced.
    """

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    pythons: tuple[str, ...]
    glibc: str | None = None
    torch_index: str | None = None
    built: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    listed: str | None = None
    sdists: tuple[str, ...] = ()
    files: Mapping[str, str] = Field(default_factory=dict)
    onto: Packages | None = None

    def with_more(self, *requirements: str, constraints: Iterable[str] = ()) -> Self:
        """Return these and more, as an image has that stands on one with these."""
        more = {
            "requirements": tuple(dict.fromkeys((*self.requirements, *requirements))),
            "constraints": tuple(dict.fromkeys((*self.constraints, *constraints))),
        }
        return self.model_copy(update=more)


class Cuda(_Frozen):
    """The CUDA that an image's libraries are of: a release, ``12.1.1``, or a release line, ``13.0``.

    ``forward`` says that the image has NVIDIA's compatibility libraries, as images of NVIDIA have. They let drivers of
    older branches run it.
    """

    version: str
    forward: bool = True

    @property
    def least_driver(self) -> str | None:
        """The oldest driver that runs machine code of this CUDA without those libraries; None if not known."""
        return least_driver(self.version.partition(".")[0])

    @property
    def requirement(self) -> str:
        """What the image asks of a host's driver, as NVIDIA's images do in ``NVIDIA_REQUIRE_CUDA``; empty: nothing.

        Words are alternatives (NVIDIA/nvidia-container-toolkit d34b3046, internal/requirements/constraints/factory.go
        :56). NVIDIA's images name branches of drivers alone, by their first number.
        """
        least = self.least_driver
        return f"cuda>={line(self.version)} driver>={least.partition('.')[0]}" if least else ""


class ImageSpec(_Frozen):
    """One image: everything that decides its content except the files of its context.

    ``name`` is unique in its stack. ``repository`` is the last part of the repository's name, by default the name;
    images that differ in their platform alone have it in common. ``context`` is relative to the checkout, and
    ``dockerfile`` to the context. An image of the user's own (``own``) is one that no flavor has. ``args`` are build
    arguments; they stay in the image's history, so none is secret. ``parents`` maps each argument of a
    ``FROM`` or a mount to the image it names. ``base_name`` is the outside image that the image stands on by way of a
    product; the label ``base.name`` names it. ``branches`` maps arguments to branches; the lock replaces them with
    commits. ``commits`` maps git tags and short commits, as ``owner/name ref``, to those of the lock.
    ``packages`` are those from Python indexes, None if they are not known before the build. ``cuda`` is the CUDA that
    it runs; None for the CPU alone. ``environment`` has the variables that the image gets at its end. ``compiled`` has
    what the stack itself compiled of it for GPUs: by the name of a Python package, or by a pattern of paths, the
    compute capabilities, ``8.0 9.0+PTX``.

    A ``product`` (a source, a wheel, a tool) is mounted by other builds and not run. ``tuning`` arguments, such as the
    number of parallel jobs, change the speed of a build and not its result.
    """

    name: str
    repository: str | None = None
    context: str = CONTEXT
    dockerfile: str
    own: bool = False
    target: str | None = None
    platform: str = "linux/amd64"
    product: bool = False
    args: Mapping[str, str] = Field(default_factory=dict)
    tuning: Mapping[str, str] = Field(default_factory=dict)
    parents: Mapping[str, Parent] = Field(default_factory=dict)
    base_name: str | None = None
    branches: Mapping[str, Branch] = Field(default_factory=dict)
    commits: Mapping[str, str] = Field(default_factory=dict)
    packages: Packages | None = None
    cuda: Cuda | None = None
    compiled: Mapping[str, str] = Field(default_factory=dict)
    environment: Mapping[str, str] = Field(default_factory=dict)
    description: str
    licenses: str
    suffix: Suffix

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", value):
            raise ValueError("an image's name is lower-case letters and digits, parts joined by '-'")
        return value

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        ambiguous = sorted(set(self.args) & set(self.parents))
        if ambiguous:
            raise ValueError(f"{', '.join(ambiguous)}: an argument is a parent or a value, not both")
        return self

    @property
    def path(self) -> str:
        """The Dockerfile's path, relative to the checkout."""
        return f"{self.context}/{self.dockerfile}"

    @property
    def published_name(self) -> str:
        """The last part of the repository's name. In a stack for several platforms, some images share it."""
        return self.repository or self.name

    @property
    def is_part(self) -> bool:
        """Whether the image is published as one platform's part of an index. A product is published by its content."""
        return self.repository is not None and not self.product

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels: what it is, its versions and the driver it needs, never a date or a revision.

        A revision or a date would change the digest of every parent, and so rebuild its children. A product has no
        labels: nobody runs it, and a reworded description would compile everything built on it again.
        """
        if self.product:
            return {}
        labels = {
            "title": self.published_name,
            "description": self.description,
            "version": self.suffix.model_copy(update={"zstd": None, "tail": None}).render(),
            "licenses": self.licenses,
        }
        base = self.parents.get("BASE_IMAGE")
        if name := base.reference if isinstance(base, Outside) else self.base_name:
            labels["base.name"] = name
        least = self.cuda and self.cuda.least_driver
        return {LABEL_PREFIX + key: value for key, value in labels.items()} | ({DRIVER_LABEL: least} if least else {})

    @property
    def label_args(self) -> dict[str, str]:
        """The build arguments that carry the labels."""
        return label_args(self.labels)

    @property
    def siblings(self) -> list[str]:
        """Names of the images of the same stack that this one needs."""
        return [parent.image for parent in self.parents.values() if isinstance(parent, Sibling)]


Elsewhere.model_rebuild()  # it has images, which have parents


def label_args(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments that carry labels: LABEL_TITLE, ... docker.Image has no input for labels."""
    return {
        _LABEL_ARG + key.removeprefix(LABEL_PREFIX).upper().replace(".", "_"): value for key, value in labels.items()
    }


def label_name(argument: str) -> str | None:
    """Return the label that a build argument carries; None if it carries none."""
    if not argument.startswith(_LABEL_ARG):
        return None
    name = argument.removeprefix(_LABEL_ARG).lower().replace("_", ".")
    return name if name == DRIVER_LABEL else LABEL_PREFIX + name


def parents_first(specs: Iterable[ImageSpec]) -> list[ImageSpec]:
    """Return the specs with parents before children, otherwise in the order given.

    Raises SlipwayError: two specs have one name, a parent is missing, or the parents form a circle.
    """
    by_name: dict[str, ImageSpec] = {}
    for spec in specs:
        if spec.name in by_name:
            raise SlipwayError(f"two images of the stack are named '{spec.name}'")
        by_name[spec.name] = spec
    for spec in by_name.values():
        for parent in spec.siblings:
            if parent not in by_name:
                raise SlipwayError(
                    f"image '{spec.name}' needs '{one_line(parent)}', which the stack does not build; "
                    f"it builds: {', '.join(by_name)}"
                )
    try:
        order = TopologicalSorter({spec.name: spec.siblings for spec in by_name.values()}).static_order()
        return [by_name[name] for name in order]
    except CycleError as error:
        raise SlipwayError(f"images cannot be each other's parents: {' -> '.join(error.args[1])}") from None


def needed_for(name: str, specs: Iterable[ImageSpec]) -> list[ImageSpec]:
    """Return an image of a stack and what it is made of, parents before children; ``specs`` are the stack's."""
    ordered = parents_first(specs)
    needed = {name}
    for spec in reversed(ordered):
        if spec.name in needed:
            needed.update(spec.siblings)
    return [spec for spec in ordered if spec.name in needed]
