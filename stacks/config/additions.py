"""What a stack adds to a flavor's images: packages, variables, and images of its user's own."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from pydantic import AfterValidator, Field, model_validator

from containers import secret_words
from containers.errors import one_line
from containers.path_prefixes import prefixes
from stacks.config.model import Environment, Model, form, refuse
from stacks.versions.tables import table

_NAME: Final = r"[a-z0-9]+(-[a-z0-9]+)*"
_STACK: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGIN: Final = re.compile(r"://[^/]*@")
"""An address with ``user:password@``."""
_THE_IMAGES: Final = {
    "PATH": "the image's programs are found by it",
    "LD_LIBRARY_PATH": "the image's libraries are found by it",
    "LD_PRELOAD": "every program of the image would load it",
    "LD_AUDIT": "every program of the image would load it",
    "PYTHONHOME": "the image's Python is found by it",
    "PYTHONPATH": "it hides packages of the image",
    "VIRTUAL_ENV": "the image's environment is named by it",
    "CONDA_PREFIX": "the image's environment is named by it",
    "HOME": "it is the user's own",
    "NVIDIA_REQUIRE_CUDA": "it follows from the image's CUDA",
}
"""Variables that an image has for itself, and why."""


def requirement(text: str) -> str:
    """Return a requirement of a Python package in its one form.

    Raises ValueError: it is not one, names an address, or its pins contradict each other.
    """
    if text.startswith("-"):
        raise ValueError("is an option of pip's, and decides for all: give packages alone; addresses: slipway:mirrors")
    if re.search(r"\s--?[a-z]", text):
        raise ValueError("has an option of pip's behind the package: leave it out; `slipway lock` has the hashes")
    if "://" in text or re.match(r"[./~]", text) or re.search(r"\s@\s", text) or text.endswith((".whl", ".tar.gz")):
        raise ValueError(
            "names an address or a path, whose content nobody can lock: give the package's name and version; an index "
            "of your own is slipway:mirrors.pythonIndex"
        )
    try:
        parsed = Requirement(text)
        pins = {each.version for each in parsed.specifier if each.operator in {"==", "==="} and "*" not in each.version}
        contradicting = [pin for pin in pins if not parsed.specifier.contains(pin, prereleases=True)]
    except (InvalidRequirement, InvalidVersion, RecursionError) as error:
        reason = one_line(str(error).partition("\n")[0])
        raise ValueError(f"expected a package such as einops or einops>=0.8,<1: {reason}") from None
    if contradicting:
        raise ValueError("no version fits: its pins contradict each other")
    return str(parsed)


def requirement_name(text: str) -> str:
    """Return the name of the package that a requirement is for, as indexes compare names."""
    return canonicalize_name(Requirement(text).name)


def repository_path(value: str) -> str:
    """Return a path of the repository in its one form.

    Raises ValueError: it leads out of the repository, or names no file or folder below it.
    """
    path = posixpath.normpath(value)
    top = next(prefixes(path))
    if not re.fullmatch(r"[A-Za-z0-9._+/-]+", value) or value.startswith("/") or top in {"..", "."}:
        raise ValueError("expected a path below the repository's folder, such as trainer/Dockerfile")
    if top in {".git", ".slipway"}:
        raise ValueError("git and Slipway keep their own files there: name another folder")
    return path


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that are there more than once, in their order."""
    return [name for name, count in Counter(names).items() if count > 1]


_Path = Annotated[str, AfterValidator(repository_path)]
_Pip = Annotated[str, AfterValidator(requirement)]
_Apt = Annotated[
    str,
    form(
        r"[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?(=[0-9][A-Za-z0-9.+:~-]*)?",
        "a package of the distribution, such as htop or htop=3.2.2-2",
    ),
]


class PackagesConfig(Model):
    """Packages that an image has besides. Nothing that is in the image is replaced by them."""

    pip: tuple[_Pip, ...] = Field((), description="Packages of the Python index, such as einops or einops>=0.8.")
    apt: tuple[_Apt, ...] = Field((), description="Packages of Debian or Ubuntu, such as htop.")
    requirements: _Path | None = Field(
        None, description="A file of the repository with more of `pip`, one in a line, such as app/requirements.txt."
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.pip or self.apt or self.requirements):
            raise ValueError("names no package: give pip, apt or requirements, or leave the key out")
        twice = [ValueError(f"pip: {name} is there twice: leave one out") for name in repeated(self.pip_names)]
        apt = (re.split("[:=]", package)[0] for package in self.apt)
        refuse(self, twice + [ValueError(f"apt: {name} is there twice: leave one out") for name in repeated(apt)])
        return self

    @property
    def pip_names(self) -> list[str]:
        """The names of the packages of ``pip``."""
        return [requirement_name(each) for each in self.pip]


_image_name = form(_NAME, "lower-case letters and digits, parts joined by '-', such as trainer")
_parent_name = form(
    f"({_STACK}/)?{_NAME}", "an image of the stack, such as torch, or a stack and its image, such as local/torch"
)


def _arguments(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"'{one_line(name)}' is not the name of a build argument: expected letters, digits and _")
        if name == "BASE_IMAGE":
            raise ValueError("the argument BASE_IMAGE is the image that `on` names: leave it out here")
        _check_text(f"the argument {name}", name, text)
    return value


def variables(value: dict[str, str]) -> dict[str, str]:
    """Return variables that an image can have.

    Raises ValueError: a name is not a variable's, or is the image's own; a value has a login, is not one line, or is
    none that its reader knows, by ``stacks/versions/variables.toml``.
    """
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"'{one_line(name)}' is not a variable's name: expected letters, digits and _")
        if name in _THE_IMAGES:
            raise ValueError(f"the variable {name} cannot be set here: {_THE_IMAGES[name]}")
        _check_text(f"the variable {name}", name, text)
        rule = table("variables")["variable"].get(name)
        # An empty value takes a parent's away.
        if rule and (text or "empty" in rule) and not re.fullmatch(rule["values"], text):
            raise ValueError(
                f"the variable {name}: expected {rule['expected']}; with '{one_line(text)}', {rule['reader']}; "
                f"rule: {rule['source']}"
            )
    return value


def _check_text(what: str, name: str, text: str) -> None:
    if _LOGIN.search(text):
        raise ValueError(f"{what} must not carry user:password@, which would stay in the image: give it to a container")
    if secret_words.NAME.search(name):
        raise ValueError(f"{what} reads like a secret, which would stay in the image: give it to a container")
    if not text.isprintable():
        raise ValueError(f"{what}: expected one printable line")


Variables = Annotated[Environment, AfterValidator(variables)]
"""Variables of an image by name."""


class OwnImageConfig(Model):
    """An image of one's own: a Dockerfile, packages, or both, on another image."""

    name: Annotated[str, _image_name] = Field(description="The image's name in the stack.")
    dockerfile: _Path | None = Field(
        None,
        description="Its Dockerfile, a path in the repository, such as trainer/Dockerfile. The argument BASE_IMAGE "
        "names its parent. Default: none, with `packages` alone.",
    )
    context: _Path | None = Field(
        None, description="Folder that its Dockerfile copies from, with the Dockerfile in it. Default: its folder."
    )
    on: Annotated[str, _parent_name] | None = Field(
        None,
        description="The image that it stands on: one of the stack, or one that another stack publishes, such as "
        "nccl-cu132/torch. Default: the flavor's last, with its packages.",
    )
    args: Annotated[Environment, AfterValidator(_arguments)] = Field(
        default_factory=dict, description="Build arguments of its Dockerfile."
    )
    packages: PackagesConfig | None = Field(
        None, description="Packages that it has besides. Those of an image with a Dockerfile are below its steps."
    )

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        if not self.dockerfile:
            if not self.packages:
                raise ValueError(f"'{self.name}' has neither dockerfile nor packages: give one of them, or both")
            if self.args or self.context:
                raise ValueError(f"'{self.name}' has args or context, and no dockerfile: give one, or leave them out")
        elif "/" not in self.dockerfile:
            raise ValueError(
                f"'{self.name}': dockerfile: its context would be the whole repository: move it into a folder, such as "
                f"{self.name}/Dockerfile"
            )
        elif self.context and not self.dockerfile.startswith(f"{self.context}/"):
            raise ValueError(f"'{self.name}': dockerfile: '{self.dockerfile}': expected a file in {self.context}/")
        return self

    @property
    def folder(self) -> str:
        """The build context; empty without a Dockerfile."""
        return self.context or posixpath.dirname(self.dockerfile or "")
