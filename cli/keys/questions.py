"""The questions of ``slipway new`` on a terminal: missing keys, with the choices that the tables allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cli.keys.choices import choices, refusals, with_value
from cli.keys.key import Key, keys
from cli.text_table import wrapped
from stacks import flavors
from stacks.config.stack_file import NAMESPACE


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the user's choices for the missing keys.

    Those are the registry, the GPUs, the required ones, the main versions, and defaults that contradict a choice.
    """
    answers = dict(values)
    if "flavor" not in answers:
        answers["flavor"] = _prompt("flavor", "Which family of images the stack builds.", tuple(flavors.names()), None)
    rows = {key.name: key for key in keys(answers["flavor"])}
    kinds = _kinds("registry.kind", answers)
    if not rows["runners"].required and _value(answers, "registry") is None:  # runners alone push nothing
        kind = _prompt("registry.kind", rows["registry"].meaning, kinds, "local")
        answers = with_value(answers, "registry.kind", kind)
    if "archList" in rows and _value(answers, "archList") is None:
        key = rows["archList"]
        if gpus := _prompt(key.name, f"{key.meaning} Or names, such as H100; Enter for the default.", (), ""):
            answers = with_value(answers, key.name, gpus)
    settled = {name for name in rows if name != "flavor" and _value(answers, name) is not None}
    answers = _with_missing(answers, settled)
    return _with_corrected(answers, settled, rows)


def _kinds(name: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key.kind for key in keys(values["flavor"]) if key.name == name)


def _with_missing(answers: dict[str, Any], settled: set[str]) -> dict[str, Any]:
    """Ask for each missing key that is required or has choices; add it to the ``settled`` ones."""
    for key in keys(answers["flavor"]):
        if _is_missing(key, answers):
            named = key.name.endswith("kind")
            allowed = _kinds(key.name, answers) if named else choices(key, answers, settled).values
            if allowed or key.required:
                answers = with_value(answers, key.name, _prompt(key.name, key.meaning, allowed, key.default))
                settled.add(key.name)
    return answers


def _with_corrected(answers: dict[str, Any], settled: set[str], rows: Mapping[str, Key]) -> dict[str, Any]:
    """Ask for each default that the tables refuse beside a choice, with the reason."""
    while refused := next((each for each in refusals(answers) if each.field in rows.keys() - settled), None):
        key = rows[refused.field]
        click.echo(f"\n{NAMESPACE}:{refused}", err=True)
        default = "false" if "false" in key.type.split(" or ") else None
        allowed = (*(["false"] if default else []), *choices(key, answers).values)
        answers = with_value(answers, key.name, _prompt(key.name, key.meaning, allowed, default))
        settled.add(key.name)
    return answers


def _is_missing(key: Key, values: Mapping[str, Any]) -> bool:
    """Return whether to ask for a key: a required one, or the main version of a component."""
    if key.is_block or "[]" in key.name or "<name>" in key.name or _value(values, key.name) is not None:
        return False
    blocks = [".".join(key.name.split(".")[:length]) for length in range(1, key.name.count(".") + 1)]
    chosen = (block.get("kind") for name in blocks if isinstance(block := _value(values, name), Mapping))
    if key.kind and any(kind not in {None, key.kind} for kind in chosen):
        return False
    if key.required:
        required = {other.name for other in keys(values["flavor"]) if other.required}
        return all(name in required or _value(values, name) is not None for name in blocks)
    return not key.choices and key.default not in {None, "false"} and (not blocks or key.name.endswith(".version"))


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _prompt(name: str, meaning: str, allowed: tuple[str, ...], default: str | None) -> str:
    """Ask for a value: one of those allowed, or any if ``allowed`` describes them in words."""
    click.echo("\n".join([f"\n{NAMESPACE}:{name}", *wrapped(meaning), *wrapped(", ".join(allowed))]), err=True)
    listed = bool(allowed) and not any(" " in value for value in allowed)
    if listed and default is not None and default not in allowed:
        default = allowed[-1]
    answer: str = click.prompt(
        "value", type=click.Choice(allowed) if listed else str, default=default, show_choices=False, err=True
    )
    return answer
