"""Contracts: what our recipes rely on in an upstream, as data in ``contracts``, one file for each component."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from containers.errors import SlipwayError, one_line, suggest
from containers.image.gpu.release_order import order
from stacks.config.model import Model
from stacks.config.values import is_commit

CONTRACTS: Final = Path(__file__).with_name("contracts")
"""The folder of the contracts."""

CHECKS: Final = ("pattern", "absent", "requires", "variable", "symbol")
"""The fields of a row that say more of its file than that it is there."""

_VERSION: Final = "{version}"
"""What stands for the version in a row."""


class Row(Model):
    """One thing that a recipe relies on, and the check of it."""

    relies: str = Field(
        description="What of ours relies on it for, as the end of a sentence that begins with `stands`."
    )
    stands: str = Field(description="The file of ours that stands on it, from the repository's root.")
    file: str = Field(
        "", description="The upstream's file or folder; `*` stands for any part of a name, `{version}` for the version."
    )
    member: str = Field("", description="Likewise, of an archive that is not made of the repository.")
    line: int | None = Field(None, description="Its line, as last read.")
    read: str = Field("", description="The tag or commit at which it was read. Default: the contract's.")
    source: str = Field("", description="Where it was read instead, if not in the file itself.")
    since: str = Field("", description="The first version for which the row holds.")
    until: str = Field("", description="The first version for which it no longer does.")
    pattern: str = Field("", description="A regular expression that the file has; `{version}` stands for the version.")
    absent: str = Field("", description="A regular expression that the file has not.")
    requires: tuple[str, ...] | None = Field(
        None, description="All that may be among the file's requirements to build, as the recipe installs no more."
    )
    variable: str = Field("", description="A variable that the file reads: of the environment, of CMake or of make.")
    symbol: str = Field("", description="A symbol that the file, a library, exports.")

    @model_validator(mode="after")
    def _one_check(self) -> Self:
        if bool(self.file) == bool(self.member):
            raise ValueError("a row names a file or a member")
        if sum(getattr(self, check) not in {"", None} for check in CHECKS) > 1:
            raise ValueError(f"a row has one of {', '.join(CHECKS)}, or none")
        for expression in (self.pattern, self.absent):
            re.compile(expression)
        return self

    @property
    def path(self) -> str:
        """The file or member."""
        return self.file or self.member

    def of(self, version: str | None) -> Self:
        """Return the row with a version in the place of `{version}`; of None, newer than all, with any."""
        path, pattern = (version, re.escape(version)) if version else ("*", "[0-9.]+")
        filled = {"file": self.file.replace(_VERSION, path), "pattern": self.pattern.replace(_VERSION, pattern)}
        return self.model_copy(update=filled)

    def applies(self, version: str | None) -> bool:
        """Return whether the row is about a version; None is newer than all."""
        if version is None:
            return not self.until
        numbers = order(version)
        return (not self.since or numbers >= order(self.since)) and (not self.until or numbers < order(self.until))


class Pin(Model):
    """The source of a version of our stacks, and its tag."""

    argument: str = Field("", description="A build argument: its value in each stack, or its default.")
    component: str = Field("", description="Only in images whose argument COMPONENT is this.")
    parent: str = Field("", description="An outside parent without its tag: the tags that images stand on.")
    table: str = Field("", description="A table of stacks/versions, as file.table: each of its rows.")
    newest: bool = Field(default=False, description="The newest of these alone.")
    version: str = Field("", description="A version that no table names, such as one that a guide does.")
    match: str = Field("(.+)", description="A regular expression whose first group is the version in that value.")
    tag: str = Field("{}", description="The tag of a version, which stands in for {}.")


class Contract(Model):
    """What we rely on in one upstream."""

    repository: str = Field("", description="owner/name on GitHub; empty for an archive alone.")
    host: str = Field("", description="The address before the repository's name, if it is not GitHub's.")
    branch: str = Field("", description="The branch that has all versions, of a repository without tags.")
    archive: str = Field("", description="What is downloaded instead of the repository, as people call it.")
    download: str = Field("", description="The build argument with the address below which an archive is.")
    read: str = Field(description="The tag or commit at which the rows were read.")
    pin: tuple[Pin, ...] = Field(description="Where the versions come from that are held.")
    commits: Mapping[str, str] = Field(
        default_factory=dict, description="The version that a commit comes after; others are newer than all."
    )
    row: tuple[Row, ...] = Field(min_length=1, description="What we rely on.")

    @property
    def where(self) -> str:
        """The upstream, as messages name it."""
        return self.repository or self.archive

    def version(self, tag: str) -> str | None:
        """Return the version that a tag stands for; None, newer than all, for a commit that is not listed."""
        for commit, version in self.commits.items():
            if tag.startswith(commit) or (is_commit(tag) and commit.startswith(tag)):
                return version
        return tag if order(tag) and not is_commit(tag) else None

    def rows(self, tag: str | None) -> tuple[Row, ...]:
        """Return the rows that are about a tag; those of the newest version for None."""
        version = self.version(tag) if tag else None
        return tuple(row.of(version) for row in self.row if row.applies(version))


def components() -> list[str]:
    """Return the names of all components that have a contract."""
    return sorted(path.stem for path in CONTRACTS.glob("*.toml"))


def contract(component: str) -> Contract:
    """Return the contract of a component.

    Raises SlipwayError: there is none of this name; the message names the nearest and all.
    """
    names = components()
    if component not in names:
        raise SlipwayError(
            f"no contract with an upstream '{one_line(component)}'{suggest(component, names)}; "
            f"there are: {', '.join(names)}"
        )
    return Contract.model_validate(tomllib.loads((CONTRACTS / f"{component}.toml").read_text(encoding="utf-8")))
