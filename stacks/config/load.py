"""A stack's values made into its model, and every mistake in them as one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stacks.config.mirrors import MIRRORS_VARIABLE, Mirrors
from stacks.config.model import Model, is_sensitive, keys, kinds
from stacks.config.registries import Registry
from stacks.config.stack_config import Runners, StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.errors import SlipwayError, one_line, suggest
from stacks.references import full_names
from stacks.versions.incompatible import Incompatible

ENCRYPTED = "[secret]"
"""What stands for a value that Pulumi encrypted, outside its programs."""


def from_pulumi(values: Mapping[str, str]) -> dict[str, Any]:
    """Turn the configuration that Pulumi hands a program (full keys, JSON for objects) into our own keys.

    Raises:
        SlipwayError: a value that starts like an object is not JSON.
    """
    prefix = f"{NAMESPACE}:"
    result: dict[str, Any] = {}
    for key, value in values.items():
        if not key.startswith(prefix):
            continue
        name = key[len(prefix) :]
        if value[:1] in {"{", "["}:
            try:
                result[name] = json.loads(value)
            except json.JSONDecodeError as error:
                raise SlipwayError(f"{key}: '{one_line(value)}' is not JSON: {error.msg}") from None
        else:
            result[name] = value
    return result


ConfigT = TypeVar("ConfigT", bound=StackConfig)


def build(model: type[ConfigT], values: Mapping[str, Any], where: str) -> ConfigT:
    """Make a stack's model from its values, mirrors from the environment below its own.

    Raises:
        SlipwayError: one line for each mistake, starting with ``where`` and the full key.
    """
    if mistakes := [f"{where}: {line}" for line in _no_text(values, ())]:
        raise SlipwayError("\n".join(mistakes))
    merged = {key: without_secure(value) for key, value in values.items()}
    below = _mirrors_below()
    own = merged.get("mirrors") or {}
    if below and isinstance(own, Mapping):
        for key, named in _NAMED.items():
            entries = own.get(key) or {}
            if key in below and isinstance(entries, Mapping):
                names = {name for entry in entries for name in named(str(entry))}
                kept = {entry: to for entry, to in below[key].items() if names.isdisjoint(named(entry))}
                own = {**own, key: {**kept, **entries}}
        merged["mirrors"] = {**below, **own}
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, where))) from None


def _no_text(value: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each key in a value, itself at ``keys``, that is no text, as only a program can write them."""
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(key, str):
            yield from _no_text(item, (*keys, key))
        else:
            yield f"{_full(keys)}: the key '{one_line(key)}' is no text: quote it"
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        yield from _no_text(item, (*keys, str(index)))


_NAMED: Mapping[str, Callable[[str], tuple[str, ...]]] = {"images": full_names, "downloads": lambda address: (address,)}
"""The mirrors that are a mapping: by key, what an entry stands for, however it is spelled."""


def _mirrors_below() -> dict[str, Any]:
    """Return the environment's mirrors, as a stack would write them."""
    text = os.environ.get(MIRRORS_VARIABLE)
    if not text:
        return {}
    try:
        return Mirrors.model_validate_json(text).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, f"${MIRRORS_VARIABLE}"))) from None


def without_secure(value: Any) -> Any:
    """Replace what Pulumi encrypted (``{secure: ...}``), unreadable outside a program, by a placeholder."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return ENCRYPTED
        return {key: without_secure(item) for key, item in value.items()}
    return [without_secure(item) for item in value] if isinstance(value, list) else value


_TAGS = {*kinds(Registry), *kinds(Runners)}
"""What pydantic names between a key that is one of several models and the key in it."""

_SENSITIVE = {key.rpartition(".")[2] for key, field in keys(StackConfig) if is_sensitive(field)}
"""Last parts of the keys whose value no error shows."""


def _full(parts: Sequence[str]) -> str:
    """Return a key as it is written in a stack's file; the file's block of keys for none."""
    return f"{NAMESPACE}:" + ".".join(parts) if parts else "config"


def _explain(error: ValidationError, where: str) -> list[str]:
    return [_line(detail, where) for detail in error.errors(include_url=False)]


def _line(detail: ErrorDetails, where: str) -> str:
    context = detail.get("ctx", {})
    if isinstance(context.get("error"), Incompatible):  # it names the field and the value itself
        return f"{where}: {NAMESPACE}:{context['error']}"
    # A discriminated union puts the tag into the location; the user wrote no such key.
    parts = [one_line(str(part)) for part in detail["loc"] if part not in _TAGS]
    name = _full(parts)
    value = detail["input"]
    said = detail["msg"].removeprefix("Value error, ")
    hidden = isinstance(value, Mapping | Model) or _SENSITIVE & set(parts) or "PRIVATE KEY" in str(value)
    shown = "" if hidden else f" '{one_line(value)}':"
    match detail["type"]:
        case "missing":
            shown, said = "", "is required"
        case "union_tag_not_found":
            shown, said = "", f"{context['discriminator']} is required"
        case "union_tag_invalid":
            name, shown = f"{name}.kind", f" '{one_line(context['tag'])}':"  # by which unions here are told apart
            allowed = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            said = f"expected one of {', '.join(allowed)}{suggest(context['tag'], allowed)}"
        case _ if value is None:
            shown, said = "", "has no value: write one, or leave the key out"
        case "model_type" | "model_attributes_type" | "dict_type":
            said = "expected a mapping of keys to values"
    return f"{where}: {name}:{shown} {said[:1].lower()}{said[1:]}"
