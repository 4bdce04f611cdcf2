"""Completion of stacks' and images' names in a shell, and the script that switches it on."""

from __future__ import annotations

import json
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from stacks.config.stack_file import NAMESPACE, ROOT, stack_names
from stacks.errors import SlipwayError

SCHEMA: Final = ROOT / "stacks" / "stack.schema.json"
"""The JSON schema of stack files."""

SHELLS: Final = ("bash", "zsh")
"""The shells that there is a script for."""


def stacks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the names of stacks that begin so."""
    return [CompletionItem(name) for name in stack_names() if name.startswith(incomplete)]


def images(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the images that begin so, of the stack that the line names; none where the stack has a mistake."""
    from stacks import plan  # noqa: PLC0415 - completing anything else loads no models

    try:
        _, specs = plan.resolve(ctx.params["stack"])
    except SlipwayError:
        return []
    return [
        CompletionItem(spec.name, help=spec.description)
        for spec in specs
        if not spec.product and spec.name.startswith(incomplete)
    ]


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the keys of stack files that begin so, as the committed JSON schema has them."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    names = {
        key: value.get("description", "")
        for branch in schema["properties"]["config"]["allOf"]
        for key, value in branch["then"]["properties"].items()
    }
    prefix = f"{NAMESPACE}:"
    found = {key.removeprefix(prefix): meaning for key, meaning in names.items()}
    return [CompletionItem(key, help=meaning) for key, meaning in sorted(found.items()) if key.startswith(incomplete)]


def flavors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the flavors that begin so, as the committed JSON schema has them."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    names = schema["properties"]["config"]["properties"][f"{NAMESPACE}:flavor"]["enum"]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def stack_then_image(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``STACK [IMAGE]`` of one argument that takes several words."""
    words = ctx.params.get(param.name or "") or ()
    if not words:
        return stacks(ctx, param, incomplete)
    ctx.params["stack"] = words[0]
    return images(ctx, param, incomplete)


def script(shell: str, command: click.Command) -> str:
    """Return the script that switches on the completion of a command in a shell."""
    completion = get_completion_class(shell)
    assert completion is not None, shell  # noqa: S101 - click has one for each of SHELLS
    return completion(command, {}, "slipway", "_SLIPWAY_COMPLETE").source()
