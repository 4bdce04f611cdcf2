"""Every key of a flavor with its type, default and meaning, read from the JSON schema of its models."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cli.keys.stack_schema import flavor_schema
from stacks.config.stack_config import StackConfig


@dataclass(frozen=True)
class Key:
    """One key of a stack file.

    ``name`` has no prefix: ``torch.vision``, ``train[].uid``, ``trust.<name>.key``. ``kind`` is the kind of registry or
    of runners with the key, if not all have it. ``default`` is None where there is none. ``choices`` are the only
    values allowed, where the model lists them. ``is_block`` says whether the key holds keys of its own.
    """

    name: str
    type: str
    default: str | None
    meaning: str
    kind: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    is_block: bool = False

    @property
    def block(self) -> str:
        """The name of the block that has it; empty outside blocks."""
        return self.name.rpartition(".")[0]

    @property
    def is_common(self) -> bool:
        """Whether every flavor has it."""
        return self.name.partition(".")[0].removesuffix("[]") in _common()


@cache
def _common() -> frozenset[str]:
    return frozenset(field.alias or name for name, field in StackConfig.model_fields.items())


@cache
def keys(flavor: str) -> tuple[Key, ...]:
    """Return the keys of a flavor, each block before its own keys."""
    schema = flavor_schema(flavor)
    return tuple(_keys(schema, schema["definitions"], "", ""))


def owners(flavors: Iterable[str]) -> dict[Key, list[str]]:
    """Return the keys of some flavors, each with the flavors that have it."""
    names: dict[Key, list[str]] = {}
    for flavor in flavors:
        for key in keys(flavor):
            names.setdefault(key, []).append(flavor)
    return names


def _keys(schema: Mapping[str, Any], models: Mapping[str, Any], prefix: str, kind: str) -> Iterator[Key]:
    for name, written in schema["properties"].items():
        blocks = list(_blocks(written, models))
        yield Key(
            name=prefix + name,
            type=_type(written, models),
            default=_default(written.get("default"), has_keys=bool(blocks)),
            meaning=written.get("description") or _meaning_of_model(written, models),
            kind=kind,
            choices=tuple(_choices(written)),
            required=name in schema.get("required", ()),
            is_block=bool(blocks),
        )
        for suffix, block in blocks:
            block_kind = block["properties"].get("kind", {}).get("const", kind)
            yield from _keys(block, models, f"{prefix}{name}{suffix}.", block_kind)


def _meaning_of_model(written: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Return the description of a key's model: pydantic writes a key's own only where the two differ."""
    described = (
        models[posixpath.basename(part["$ref"])].get("description", "") for part in _parts(written) if "$ref" in part
    )
    return next(described, "")


def _parts(written: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a schema, or itself."""
    alternatives = written.get("anyOf", []) + written.get("oneOf", [])
    for part in alternatives:
        yield from _parts(part)
    if not alternatives:
        yield written


def _blocks(written: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the models of a key's value, each with the text between the two keys."""
    for part in _parts(written):
        if "$ref" in part:
            yield from _blocks(models[posixpath.basename(part["$ref"])], models)
        elif "properties" in part and "secure" not in part["properties"]:
            yield "", part
        elif part.get("type") == "array":
            yield from ((f"[]{suffix}", block) for suffix, block in _blocks(part.get("items", {}), models))
        elif isinstance(part.get("additionalProperties"), Mapping):
            yield from ((f".<name>{suffix}", block) for suffix, block in _blocks(part["additionalProperties"], models))


_SCALARS = {"boolean": "true or false", "integer": "a number", "number": "a number", "string": "text", "null": ""}


def _type(written: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Return a type in words: ``text or false``, ``a list of text``."""
    return " or ".join(dict.fromkeys(filter(None, (_word(part, models) for part in _parts(written)))))


def _word(part: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if "$ref" in part:
        return _type(models[posixpath.basename(part["$ref"])], models)
    if "const" in part or "enum" in part:
        return (
            ""
            if part.get("const") == ""
            else ", ".join(_text(value) for value in part.get("enum", [part.get("const")]))
        )
    kind = part.get("type", "")
    if kind == "array":
        inner = part.get("items", {})
        return f"a list of {'blocks' if list(_blocks(inner, models)) else _type(inner, models) or 'values'}"
    if kind == "object":
        values = part.get("additionalProperties")
        if not isinstance(values, Mapping):
            return "" if "secure" in part.get("properties", {}) else "a block of keys"
        return f"{'blocks' if list(_blocks(values, models)) else _type(values, models)} by name"
    return _SCALARS[kind if isinstance(kind, str) and kind else "string"]


def _choices(written: Mapping[str, Any]) -> Iterator[str]:
    parts = [part for part in _parts(written) if part.get("type") != "null"]
    for part in parts:
        if part.get("type") == "boolean" and len(parts) == 1:
            yield from ("true", "false")
        elif all("enum" in alternative or "const" in alternative for alternative in parts):
            yield from map(_text, part.get("enum", [part.get("const")]))
        elif part.get("type") == "array" and "enum" in part.get("items", {}):
            yield from map(_text, part["items"]["enum"])


def _default(value: Any, *, has_keys: bool) -> str | None:
    return None if value in (None, [], {}, "") or has_keys else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)
