"""Make a stack's model from its values, and report each mistake in them as one line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from containers.errors import SlipwayError, one_line, suggest
from containers.registry.reference import Reference, full_names
from stacks.config.fetching.mirrors import MIRRORS_VARIABLE, MirrorsConfig
from stacks.config.model import ENCRYPTED, Model, as_yaml, is_sensitive, keys, kinds
from stacks.config.publishing.compression import Compression
from stacks.config.registries import Registry
from stacks.config.stack_config import Runners, StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.versions.incompatible import Incompatible

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""The control characters of Unicode, less tabs and line breaks."""


def from_pulumi(values: Mapping[str, str]) -> dict[str, Any]:
    """Turn a program's configuration from Pulumi (full keys, objects as JSON) into a stack's own keys.

    Raises SlipwayError: a value that starts like an object is not JSON.
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
    """Make a stack's model from its values. Mirrors of the environment apply where the stack names no other.

    Raises SlipwayError: one line for each mistake, starting with ``where`` and the full key.
    """
    if mistakes := [f"{where}: {line}" for line in _unreadable(values, ())]:
        raise SlipwayError("\n".join(mistakes))
    merged = {key: without_secure(value) for key, value in values.items()}
    default, mirrors = environment_mirrors(), merged.get("mirrors") or {}
    if default and isinstance(mirrors, Mapping):
        for key, names_of in _NAMES.items():
            entries = mirrors.get(key) or {}
            if key in default and isinstance(entries, Mapping):
                names = {name for entry in entries for name in names_of(str(entry))}
                defaults = {entry: to for entry, to in default[key].items() if names.isdisjoint(names_of(entry))}
                mirrors = {**mirrors, key: {**defaults, **entries}}
        merged["mirrors"] = {**default, **mirrors}
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, where))) from None


def _unreadable(value: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each key that is not text in the value of ``keys``, and for each text with a control character.

    Only a program can write such keys. A control character ends a text for some programs, and commands a terminal.
    """
    if isinstance(value, str) and (control := _CONTROL.search(value)):
        yield f"{_full(keys)}: has the control character {one_line(control[0])}: remove it"
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if not isinstance(key, str):
            yield f"{_full(keys)}: the key '{one_line(key)}' is not text: quote it"
        elif _CONTROL.search(key):
            yield f"{_full(keys)}: the key '{one_line(key)}' has a control character: remove it"
        else:
            yield from _unreadable(item, (*keys, key))
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        yield from _unreadable(item, (*keys, str(index)))


_NAMES: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "images": full_names,
    "imageDigests": lambda name: (str(Reference.of(name).in_full),),
    "downloads": lambda address: (address,),
}
"""The keys of ``mirrors`` that hold a mapping, and the function that returns all names of an entry."""


def environment_mirrors() -> dict[str, Any]:
    """Return the environment's mirrors, as a stack would write them."""
    text = os.environ.get(MIRRORS_VARIABLE)
    if not text:
        return {}
    try:
        return MirrorsConfig.model_validate_json(text).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, f"${MIRRORS_VARIABLE}"))) from None


def without_secure(value: Any) -> Any:
    """Replace what Pulumi encrypted (``{secure: ...}``), unreadable outside a program, by a placeholder."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return ENCRYPTED
        return {key: without_secure(item) for key, item in value.items()}
    return [without_secure(item) for item in value] if isinstance(value, list) else value


_TAGS = {*kinds(Compression), *kinds(Registry), *kinds(Runners)}
"""The kinds that pydantic puts into the location of an error, between a union's key and the key in it."""

_SENSITIVE = {key.rpartition(".")[2] for key, field in keys(StackConfig) if is_sensitive(field)}
"""Last parts of the keys whose value no error shows."""


FORMS: Final = {
    "^[0-9]{12}$": "12 digits, in quotes",
    "^([0-9]{12})?$": "12 digits, in quotes",
    "^[1-9][0-9]*m?$": "CPUs, such as 4, or 500m for half of one",
    r"^[0-9]+\.[0-9]+\.[0-9]+$": "a version, such as 0.14.2",
    r"^[\w.-]+/[\w.-]+$": "OWNER/NAME of a repository",
    r"^[\w.-]+(:\d+)?/[!-~]+$": "HOST/PATH of a repository, such as github.com/acme/images",
    r"^refs/[!-~]+$": "a branch or tag, such as refs/heads/main",
    "^[a-z0-9]+(-[a-z0-9]+)*$": "lower-case letters and digits, with - between them",
    "^[!-~]+$": "ASCII text without spaces",
    "^sha256:[0-9a-f]{64}$": "a digest: sha256: and 64 of 0-9 and a-f",
}
"""What text matches each ``pattern`` of a key."""

_OF_KEY: Final = "[key]"
"""What pydantic puts last into the location of an error of a mapping's key."""


def _written(value: Any) -> Any:
    """Return a value as YAML has it: a list with its items in brackets."""
    return f"[{', '.join(str(as_yaml(item)) for item in value)}]" if isinstance(value, list | tuple) else as_yaml(value)


def _full(parts: Sequence[str]) -> str:
    """Return a key as in a stack's file, or ``config`` for no key."""
    return f"{NAMESPACE}:" + ".".join(map(one_line, parts)) if parts else "config"


def _explain(error: ValidationError, where: str) -> list[str]:
    return [_line(detail, where) for detail in error.errors(include_url=False)]


def _line(detail: ErrorDetails, where: str) -> str:
    context = detail.get("ctx", {})
    if isinstance(context.get("error"), Incompatible):  # it names the field and the value itself
        return f"{where}: {NAMESPACE}:{context['error']}"
    # A discriminated union puts the tag into the location; the user wrote no such key.
    # A wrong key of a mapping is its own value: pydantic puts a mark behind it.
    parts = [one_line(str(part)) for part in detail["loc"] if part not in _TAGS and part != _OF_KEY]
    name = _full(parts)
    value = detail["input"]
    message = detail["msg"].removeprefix("Value error, ")
    hidden = isinstance(value, Mapping | Model) or _SENSITIVE & set(parts) or "PRIVATE KEY" in str(value)
    quoted = "" if hidden else f" '{one_line(_written(value))}':"
    match detail["type"]:
        case "missing":
            quoted, message = "", "is required"
        case "union_tag_not_found":
            quoted, message = "", f"{context['discriminator']} is required"
        case "union_tag_invalid":
            name, quoted = f"{name}.kind", f" '{one_line(context['tag'])}':"  # the discriminator of every union here
            allowed = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            message = f"expected one of {', '.join(allowed)}{suggest(context['tag'], allowed)}"
        case _ if value is None:
            quoted, message = "", "has no value: give one, or leave the key out"
        case "model_type" | "model_attributes_type" | "dict_type":
            message = "expected a mapping of keys to values"
        case "string_pattern_mismatch":
            pattern = context["pattern"]  # a flavor of one's own has others
            message = f"expected {FORMS.get(pattern, f'text that matches {pattern}')}"
        case "int_parsing" | "int_from_float":
            message = "expected a whole number"
        case "tuple_type" | "list_type":
            message = "expected a list"
    return f"{where}: {name}:{quoted} {message[:1].lower()}{message[1:]}"
