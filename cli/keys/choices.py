"""The values that tables allow for a key. A rule lists them when it refuses a value, so this tries impossible ones."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pydantic import ValidationError

from cli.keys.key import Key
from stacks import flavors
from stacks.config.load import without_secure
from stacks.versions.incompatible import Incompatible

_IMPOSSIBLE_VALUES: Final = ("0.0.0", "0.0", "0", "0.0.0-1", "none", "0000000")
"""Values in the forms of keys that no table has. The first refusal lists the allowed values."""

_MALFORMED_VALUE: Final = "!"
"""A value that every pattern refuses. The refusal describes the pattern."""


@dataclass(frozen=True)
class Choices:
    """The allowed ``values`` of a key in the table's order, empty if any is allowed; ``rule`` is their source."""

    values: tuple[str, ...]
    rule: str


def choices(key: Key, values: Mapping[str, Any], settled: Collection[str] | None = None) -> Choices:
    """Return the allowed values of a key beside a stack's other ``values``, which include ``flavor``.

    If no value fits the others, which may have to change too, all of the table are returned. A value must fit the
    ``settled`` keys; None for all, with their defaults.
    """
    if key.choices:
        return Choices(key.choices, "the models")
    for value in _IMPOSSIBLE_VALUES:
        if refusal := _refusal(key, values, value):
            allowed = refusal.allowed
            fits = tuple(choice for choice in allowed if _fits(key, with_value(values, key.name, choice), settled))
            return Choices(fits or allowed, refusal.source)
    return Choices((), "")


def _fits(key: Key, values: Mapping[str, Any], settled: Collection[str] | None) -> bool:
    if settled is None:
        return not _errors(values)
    return not settled or not any(refusal.field in {key.name, *settled} for refusal in refusals(values))


def refusals(values: Mapping[str, Any]) -> list[Incompatible]:
    """Return the refusals of a stack's values by the tables."""
    errors = (error.get("ctx", {}).get("error") for error in _errors(values))
    return [error for error in errors if isinstance(error, Incompatible)]


def form(key: Key, values: Mapping[str, Any]) -> str:
    """Return the form that a key's value must have, from its refusal; empty if none is known."""
    place = _path(key.name)
    for error in _errors(with_value(values, key.name, _MALFORMED_VALUE)):
        if place == tuple(part for part in map(str, error["loc"]) if part in place) and error["type"] == "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
    return ""


def with_value(values: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return values with the one of a key replaced; missing blocks are added."""
    changed = copy.deepcopy(dict(values))
    block: Any = changed
    path = _path(name)
    last = path[-1]
    for part, next_part in pairwise(path):
        inner = block[int(part)] if isinstance(block, list) else block.get(part)
        if not isinstance(inner, dict | list):
            inner = [{}] if next_part == "0" else {}
            block[int(part) if isinstance(block, list) else part] = inner
        block = inner
    block[int(last) if isinstance(block, list) else last] = value
    return changed


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.replace("[]", ".0").replace("<name>", "name").split("."))


def _refusal(key: Key, values: Mapping[str, Any], value: str) -> Incompatible | None:
    for refusal in refusals(with_value(values, key.name, value)):
        if refusal.value == value and refusal.allowed:
            return refusal
    return None


def _errors(values: Mapping[str, Any]) -> list[Any]:
    try:
        flavors.flavor(str(values["flavor"])).Config.model_validate(without_secure(values))
    except ValidationError as error:
        return error.errors(include_url=False)
    return []
