"""What public sources list that a table does not have. Nothing is written: a row holds more than such a list says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator

from cli import torch_table
from cli.upstream import git_objects
from oci.client import Repository
from stacks.config.fetching.mirrors import Mirrors
from stacks.config.load import environment_mirrors
from stacks.config.model import Model
from stacks.errors import SlipwayError, one_line, suggest
from stacks.versions.tables import order, table

SOURCES: Final = Path(__file__).with_name("sources.toml")
"""The sources, as data."""


class Source(Model):
    """One public list of releases, and the table's rows that it is of."""

    table: str = Field(description="The table, a file of stacks/versions.")
    rows: str = Field(description="Where in it the releases are: keys with a dot between them; empty: the whole file.")
    index: str = Field("", description="A project on the Python index.")
    git: str = Field("", description="A repository on GitHub, owner/name.")
    image: str = Field("", description="A repository of images, with its registry.")
    pattern: str = Field(description="A version or tag; the first group is the release.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(map(bool, (self.index, self.git, self.image))) != 1:
            raise ValueError("a source is an index, a git repository or an image")
        return self

    @property
    def name(self) -> str:
        """The rows, as messages name them."""
        return f"{self.table} {self.rows}".rstrip()

    @property
    def where(self) -> str:
        """The source, as messages name it."""
        return f"{self.index} on the Python index" if self.index else f"tags of {self.git or self.image}"

    @property
    def known(self) -> Collection[str]:
        """The releases that the table has."""
        rows: Mapping[str, Any] | Collection[str] = reduce(
            lambda values, key: values[key], filter(None, self.rows.split(".")), table(self.table)
        )
        return tuple(rows)

    def listed(self) -> set[str]:
        """Return the releases that the source has.

        Raises:
            SlipwayError: it does not answer, or has none, as after a change of its names.
        """
        mirrors = environment_mirrors()
        if self.index:
            names = torch_table.versions(torch_table.pip_index_url(), self.index)
        elif self.git:
            names = set(git_objects.tags(self.git, mirrors.get("git") or git_objects.PUBLIC))
        else:
            # The tag is not read: a reference has one.
            reference = Mirrors(images=mirrors.get("images", {})).image(f"{self.image}:latest")
            names = set(Repository(reference).tags())
        releases = {match[1] for name in names if (match := re.fullmatch(self.pattern, name))}
        if not releases:
            raise SlipwayError(f"{self.where}: there is no release like {self.pattern}; see {SOURCES.name}")
        return releases


@dataclass(frozen=True, slots=True)
class News:
    """What a source said.

    Attributes:
        source: the source.
        new: the releases that the table lacks and that are newer than its oldest, oldest first.
        error: why the source could not be asked; empty if it could.
    """

    source: Source
    new: tuple[str, ...] = ()
    error: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines for a user: a diff of the table with the source's name above it."""
        if self.error:
            return [f"{self.source.name}: {self.error}"]
        if not self.new:
            return [f"{self.source.name}: has all ({self.source.where})"]
        return [f"{self.source.name}: {self.source.where}", *(f"+ {release}" for release in self.new)]


def sources() -> tuple[Source, ...]:
    """Return all sources."""
    return tuple(map(Source.model_validate, tomllib.loads(SOURCES.read_text(encoding="utf-8"))["source"]))


def news(names: Collection[str]) -> Iterator[News]:
    """Ask the sources of some tables, of all for none, and yield what each says. A release is never taken from a table.

    Raises:
        SlipwayError: a table has no source.
    """
    tables = tuple(dict.fromkeys(source.table for source in sources()))
    for name in names:
        if name not in tables:
            raise SlipwayError(
                f"no table '{one_line(name)}' that a source can be asked for{suggest(name, tables)}; "
                f"there are: {', '.join(tables)}"
            )
    for source in sources():
        if not names or source.table in names:
            try:
                listed = source.listed()
            except SlipwayError as error:
                yield News(source, error=str(error))
            else:
                oldest = min(map(order, source.known))
                new = {release for release in listed - set(source.known) if order(release) > oldest}
                yield News(source, tuple(sorted(new, key=lambda release: (order(release), release))))
