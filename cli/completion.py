"""Completion of stacks' and images' names in a shell, and the script that switches it on."""

from __future__ import annotations

import contextlib
import json
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from containers.errors import SlipwayError
from stacks.config.stack_file import NAMESPACE, ROOT, read_stack, stack_names
from stacks.places import CODE

SCHEMA: Final = CODE / "stacks" / "stack.schema.json"
"""The JSON schema of stack files."""

_CACHE: Final = ROOT / ".slipway" / "cache" / "completion.json"
"""Names of images, as to resolve a stack takes longer than a person at a prompt waits."""

SHELLS: Final = ("bash", "zsh")
"""The shells that there is a script for."""


def stacks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the names of stacks that begin so."""
    return [CompletionItem(name) for name in stack_names() if name.startswith(incomplete)]


def images(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the images that begin so, of the stack in the line; none where the stack has a mistake."""
    names = _image_names(ctx.params["stack"])
    return [CompletionItem(name, help=meaning) for name, meaning in names.items() if name.startswith(incomplete)]


def promoted_tags(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the tags that begin so, of those promoted by the stack in the line."""
    try:
        promotion = read_stack(ctx.params["stack"]).get("promotion")
    except SlipwayError:
        return []
    tags = promotion.get("tags") if isinstance(promotion, dict) else None
    names = map(str, tags) if isinstance(tags, list) else ()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _image_names(stack: str) -> dict[str, str]:
    """Return the descriptions of a stack's images by name; they are kept until a file of ``stacks`` changes."""
    if stack not in stack_names():
        return {}
    changed = max(path.stat().st_mtime_ns for path in (ROOT / "stacks").rglob("*.*"))
    try:
        cache = json.loads(_CACHE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        cache = {}
    if cache.get("changed") != changed:
        cache = {"changed": changed, "stacks": {}}
    names: dict[str, str] | None = cache["stacks"].get(stack)
    if names is None:
        names = cache["stacks"][stack] = _resolved_names(stack)
        with contextlib.suppress(OSError):  # then it is resolved again the next time
            _CACHE.parent.mkdir(parents=True, exist_ok=True)
            _CACHE.write_text(json.dumps(cache), encoding="utf-8")
    return names


def _resolved_names(stack: str) -> dict[str, str]:
    from stacks import plan  # noqa: PLC0415 - a second of imports

    try:
        _, specs = plan.resolve(stack)
    except SlipwayError:
        return {}
    return {spec.name: spec.description for spec in specs if not spec.product}


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return the keys of stack files that begin so, as the committed JSON schema has them."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    names = {
        key: value.get("description", "")
        for branch in schema["properties"]["config"]["allOf"]
        for key, value in branch["then"]["properties"].items()
    }
    prefix = f"{NAMESPACE}:"
    meanings = {key.removeprefix(prefix): meaning for key, meaning in names.items()}
    return [
        CompletionItem(key, help=meaning) for key, meaning in sorted(meanings.items()) if key.startswith(incomplete)
    ]


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
