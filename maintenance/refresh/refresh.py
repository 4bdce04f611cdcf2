"""The releases in public lists that a table lacks, and the table with them. No row is ever taken from a table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from cli.locking import git_objects
from containers.dockerfile.declarations import mirrored
from containers.errors import SlipwayError, one_line, suggest
from containers.image.gpu.release_order import order
from containers.registry.client import Repository
from maintenance.refresh import apt_index, table_text, torch_table
from maintenance.refresh.rows import ROWS
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.load import environment_mirrors
from stacks.config.model import Model
from stacks.versions import tables
from stacks.versions.tables import table

SOURCES: Final = Path(__file__).with_name("sources.toml")
"""The sources, as data."""


class ReleaseSource(Model):
    """One public list of releases, and the table's rows that it is of."""

    table: str = Field(description="The table, a file of stacks/versions.")
    rows: str = Field(description="Where in it the releases are: keys with a dot between them; empty: the whole file.")
    index: str = Field("", description="A project on the Python index.")
    git: str = Field("", description="A repository on GitHub, owner/name.")
    image: str = Field("", description="A repository of images, with its registry.")
    apt: tuple[str, ...] = Field((), description="Archives that apt reads, of which any may have a version.")
    package: str = Field("", description="The package in these.")
    pattern: str = Field(description="A version or tag; the first group is the release, a second the key of its list.")
    make: Literal["torch", "cuda", ""] = Field("", description="What makes a row of a release: see rows.py.")
    by_hand: str = Field("", description="Why no row can be made of what the source says.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(map(bool, (self.index, self.git, self.image, self.apt))) != 1:
            raise ValueError("a source is an index, a git repository, an image or archives")
        return self

    @property
    def name(self) -> str:
        """The rows, as messages name them."""
        return f"{self.table} {self.rows}".rstrip()

    @property
    def keys(self) -> list[str]:
        """The keys that lead to the rows."""
        return [key for key in self.rows.split(".") if key]

    @property
    def where(self) -> str:
        """The source, as messages name it."""
        if self.apt:
            return f"{self.package} in {' and '.join(self.apt)}"
        return f"{self.index} on the Python index" if self.index else f"tags of {self.git or self.image}"

    @property
    def keyed(self) -> bool:
        """Whether the rows are lists by a key that the pattern's second group is."""
        return re.compile(self.pattern).groups > 1

    @property
    def known(self) -> set[tuple[str, str]]:
        """The releases that the table has, each with the key of its list; no key where there is one list."""
        rows: Any = reduce(lambda values, key: values[key], self.keys, table(self.table))
        return (
            {(release, key) for key, releases in rows.items() for release in releases}
            if self.keyed
            else {(release, "") for release in rows}
        )

    def names(self) -> set[str]:
        """Return the versions or tags that the source has. Raises SlipwayError: it does not answer."""
        mirrors = environment_mirrors()
        if self.index:
            return torch_table.versions(torch_table.pip_index_url(), self.index)
        if self.git:
            return set(git_objects.tags(self.git, mirrors.get("git") or git_objects.PUBLIC))
        if self.apt:
            archives = {archive: archive for archive in self.apt}
            archives |= mirrored(archives, mirrors.get("downloads", {}))
            return set().union(*(apt_index.versions(address, self.package) for address in archives.values()))
        # The tag is not read: a reference has one.
        reference = MirrorsConfig(images=mirrors.get("images", {})).image(f"{self.image}:latest")
        return set(Repository(reference).tags())

    def news(self) -> News:
        """Ask the source. Raises SlipwayError: it does not answer, or has no such names, as after a change of them."""
        names = self.names()
        matches = [match for name in names if (match := re.fullmatch(self.pattern, name))]
        if not matches:
            raise SlipwayError(f"{self.where}: there is no release like {self.pattern}; see {SOURCES.name}")
        listed = {(match[1], match[2] if self.keyed else "") for match in matches}
        oldest = min(order(release) for release, _ in self.known)
        new = sorted(listed - self.known, key=lambda pair: (order(pair[1]), order(pair[0]), pair[0]))
        new = [(release, key) for release, key in new if order(release) > oldest]
        make = ROWS[self.make] if self.make and new else None
        rows = make(self.index or self.image, [release for release, _ in new], names) if make else {}
        return News(self, tuple(new), rows)


@dataclass(frozen=True, slots=True)
class News:
    """What a source said.

    Attributes:
        source: the source.
        new: the releases missing in the table and newer than its oldest, oldest first, with their lists' keys.
        rows: for a table with whole rows, those that could be made, by release.
        error: why the source could not be asked; empty if it could.
    """

    source: ReleaseSource
    new: tuple[tuple[str, str], ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    error: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines for a user: a diff of the table with the source's name above it."""
        if self.error:
            return [f"{self.source.name}: {self.error}"]
        if not self.new:
            return [f"{self.source.name}: has all ({self.source.where})"]
        return [f"{self.source.name}: {self.source.where}", *(self._line(*pair) for pair in self.new)]

    def _line(self, release: str, key: str) -> str:
        if release in self.rows:
            return f'+ "{release}" = {table_text.inline(self.rows[release])}'
        if self.source.by_hand or self.source.make:
            return f"? {release}: not written, {self.source.by_hand or 'the source says too little of it'}"
        return f"+ {key}: {release}" if key else f"+ {release}"

    def written(self, text: str) -> str:
        """Return the table's text with what is new."""
        keys = self.source.keys
        for release, row in self.rows.items():
            text = table_text.with_row(text, keys, release, row)
        if not self.source.make and not self.source.by_hand:
            for key, pairs in groupby(self.new, key=lambda pair: pair[1]):
                text = table_text.with_items(text, [*keys, key] if key else keys, [release for release, _ in pairs])
        return text


def sources() -> tuple[ReleaseSource, ...]:
    """Return all sources."""
    return tuple(map(ReleaseSource.model_validate, tomllib.loads(SOURCES.read_text(encoding="utf-8"))["source"]))


def news(names: Collection[str]) -> Iterator[News]:
    """Ask the sources of some tables, of all for none, and yield what each says.

    Raises SlipwayError: a table has no source.
    """
    known = tuple(dict.fromkeys(source.table for source in sources()))
    for name in names:
        if name not in known:
            raise SlipwayError(
                f"no table '{one_line(name)}' that a source can be asked for{suggest(name, known)}; "
                f"there are: {', '.join(known)}"
            )
    for source in sources():
        if not names or source.table in names:
            try:
                yield source.news()
            except SlipwayError as error:
                yield News(source, error=str(error))


def write(every: Collection[News], folder: Path = Path(tables.__file__).parent) -> list[str]:
    """Write the new rows to the tables, and return a line for each that changes or cannot.

    A table of which one source does not answer stays as it is: its sections belong together.

    Raises SlipwayError: a table would lose a row.
    """
    lines = []
    for name, group in groupby(every, key=lambda entry: entry.source.table):
        entries, path = list(group), folder / f"{name}.toml"
        if any(entry.error for entry in entries):
            lines.append(f"stacks/versions/{path.name}: left as it is, as a source of it could not be asked")
            continue
        text = path.read_text(encoding="utf-8")
        if (renewed := reduce(lambda so_far, entry: entry.written(so_far), entries, text)) != text:
            table_text.replace(path, renewed)
            lines.append(f"stacks/versions/{path.name}: written")
    return lines
