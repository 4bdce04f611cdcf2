"""A JSON schema of the stack files, made from the models of all flavors: editors check and complete the files with it.

It accepts what YAML makes of an unquoted value, such as the number 12.1 for a version. Rules over several keys, and
tables of versions, are not in it: ``slipway check`` has those.
"""

from __future__ import annotations

import json
import posixpath
from functools import cache
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from stacks import flavors
from stacks.config.model import Model
from stacks.config.stack_file import NAMESPACE
from stacks.places import CODE

PATH: Final = CODE / "stacks" / "stack.schema.json"
"""The schema's file, in the folder of the stack files; :mod:`cli.completion` reads it too."""

_KEY: Final = f"{NAMESPACE}:"


class _StackSchema(GenerateJsonSchema):
    """The models' schema as YAML is written: numbers for text, secrets that Pulumi encrypted, plain values."""

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {**super().str_schema(schema), "type": ["string", "number"]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        mapping = super().model_schema(schema)
        model = schema["cls"]
        if "const" in mapping["properties"].get("kind", {}):  # by which models of one key are told apart
            mapping["required"] = ["kind", *(key for key in mapping.get("required", []) if key != "kind")]
        if not issubclass(model, Model) or model.plain_key is None:
            return mapping
        return {"anyOf": [mapping, mapping["properties"][model.plain_key]]}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


@cache
def flavor_schema(name: str) -> dict[str, Any]:
    """Return the schema of a flavor's keys, without their prefix; models are below ``definitions``."""
    schema = flavors.flavor(name).Config.model_json_schema(
        ref_template="#/definitions/{model}", schema_generator=_StackSchema
    )
    definitions = schema.pop("$defs", {})
    return {**_cleaned(schema), "definitions": {key: _cleaned(value) for key, value in definitions.items()}}


def _cleaned(value: Any) -> Any:
    """Return a schema without titles, which only repeat names, and with encrypted secrets allowed."""
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: _cleaned(item) for key, item in value.items() if key not in {"title", "discriminator"}}
    if cleaned.get("format") == "password":
        meaning = {key: cleaned.pop(key) for key in ("description",) if key in cleaned}
        encrypted = {"type": "object", "required": ["secure"], "properties": {"secure": {}}}
        return {"anyOf": [cleaned, encrypted], **meaning}
    return cleaned


def document() -> dict[str, Any]:
    """Return the schema of a stack file."""
    definitions: dict[str, Any] = {}
    branches = []
    for name in flavors.names():
        schema = flavor_schema(name)
        renamed = {
            key: key if definitions.get(key, value) == value else f"{name}.{key}"
            for key, value in schema["definitions"].items()
        }
        definitions |= {renamed[key]: _referring(value, renamed) for key, value in schema["definitions"].items()}
        properties = {f"{_KEY}{key}": _referring(value, renamed) for key, value in schema["properties"].items()}
        branches.append(
            {
                "if": {"required": [f"{_KEY}flavor"], "properties": {f"{_KEY}flavor": {"const": name}}},
                "then": {
                    "properties": properties,
                    "required": [f"{_KEY}{key}" for key in schema.get("required", [])],
                    "propertyNames": {"anyOf": [{"enum": list(properties)}, {"not": {"pattern": f"^{_KEY}"}}]},
                },
            }
        )
    flavor = {"enum": flavors.names(), "description": "The family of images that the stack builds."}
    config = {
        "type": "object",
        "required": [f"{_KEY}flavor"],
        "properties": {f"{_KEY}flavor": flavor},
        "allOf": branches,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Generated from the models of stacks/config and stacks/flavors by `python -m maintenance schema`.",
        "title": "A stack of Slipway",
        "type": "object",
        "required": ["config"],
        "properties": {"config": config},
        "definitions": definitions,
    }


def _referring(value: Any, renamed: dict[str, str]) -> Any:
    """Return a schema with its references to definitions renamed."""
    if isinstance(value, list):
        return [_referring(item, renamed) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"#/definitions/{renamed[posixpath.basename(item)]}" if key == "$ref" else _referring(item, renamed)
        for key, item in value.items()
    }


def text() -> str:
    """Return the file's text."""
    return json.dumps(document(), indent=1) + "\n"
