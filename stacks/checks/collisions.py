"""Tags that would stand for two things: images of one name and suffix whose specs are not equal.

A tag names what people choose by, not all that decides an image's content: extras' versions, compute capabilities,
Python and where torch comes from are not in it. Within a stack the revision tells such changes apart; two
stacks changed by one commit have one revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import NamedTuple

from stacks.errors import shown
from stacks.spec import ImageSpec, Outside

_MOST_SHOWN = 3
"""Differences that a line shows; one is enough to see why."""


class Built(NamedTuple):
    """What a stack builds: its name, the prefix of its images' names, and its specs."""

    stack: str
    repository: str
    specs: Sequence[ImageSpec]


def collisions(stacks: Iterable[Built]) -> list[str]:
    """Return one line for each two stacks of which images could have equal names and tags but unequal content.

    Products do not count: their tags are their content.
    """
    lines = []
    for one, other in combinations(stacks, 2):
        ours, theirs = _contents(one), _contents(other)
        keys = [key for key in ours if key in theirs and ours[key] != theirs[key]]
        if keys:
            names = ", ".join(name for _, name, _ in keys)
            lines.append(
                f"stacks {one.stack} and {other.stack}: {names} would have equal tags in {one.repository} but differ "
                f"in {_differences([(ours[key], theirs[key]) for key in keys])}; set slipway:tagSuffix in one of them"
            )
    return lines


def tagged_twice(stacks: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one line for each two stacks that both move one extra tag; ``stacks`` maps each to its own, in full."""
    return [
        f"stacks {one} and {other}: both move the tag {min(ours & theirs)}; take it out of slipway:extraTags in one of "
        "them, or give that another repository"
        for (one, ours), (other, theirs) in combinations(stacks.items(), 2)
        if ours & theirs
    ]


def owned_twice(stacks: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one line for each two stacks that both create a repository; ``stacks`` maps each to those it creates."""
    lines = []
    for (one, ours), (other, theirs) in combinations(stacks.items(), 2):
        if both := sorted(ours & theirs):
            more = f" and {len(both) - 1} more" if len(both) > 1 else ""
            lines.append(
                f"stacks {one} and {other}: both create the repository {both[0]}{more}; say "
                "slipway:registry.create: false in one of them, or give it another repository"
            )
    return lines


def _contents(built: Built) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return all that decides an image's content, by repository, name and suffix: its reference but the revision."""
    by_name = {spec.name: spec for spec in built.specs}
    return {
        (built.repository, spec.name, spec.suffix.render()): _content(spec, by_name)
        for spec in built.specs
        if not spec.product
    }


def _content(spec: ImageSpec, by_name: Mapping[str, ImageSpec]) -> dict[str, str]:
    own = {"platform": spec.platform, "dockerfile": spec.dockerfile, "target": spec.target or "", **spec.args}
    content = {f"{spec.name} {key}": value for key, value in own.items()}
    for argument, parent in spec.parents.items():
        if isinstance(parent, Outside):
            content[f"{spec.name} {argument}"] = "@".join(filter(None, (parent.reference, parent.digest)))
        else:
            content |= {f"{spec.name} {argument}": parent.image, **_content(by_name[parent.image], by_name)}
    return content | {f"{spec.name} {label}": value for label, value in spec.labels.items()}


def _differences(pairs: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]) -> str:
    """Say what differs, and where first: the same argument goes to many images."""
    found: dict[tuple[str, str], str] = {}
    for one, other in pairs:
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                values = f"{shown(one.get(key))} and {shown(other.get(key))}"
                found.setdefault((key.rpartition(" ")[2], values), f"{key} ({values})")
    return ", ".join(list(found.values())[:_MOST_SHOWN])
