"""``slipway explain``: a key's meaning, its allowed values, and the source of the rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cli.keys.choices import choices, form
from cli.keys.key import Key, keys, owners
from cli.text_table import aligned, wrapped
from containers.errors import SlipwayError, one_line, suggest
from stacks import flavors
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE, read_stack

_EVERY: Final = "Every stack"


def sections(stack: str | None) -> dict[str, dict[str, str]]:
    """Return the meanings of the keys outside blocks, by heading and name, those of every stack first.

    Raises SlipwayError: there is no such stack, or it has no flavor.
    """
    flavor = StackConfig.model_fields["flavor"].description or ""
    result: defaultdict[str, dict[str, str]] = defaultdict(dict, {_EVERY: {"flavor": flavor}})
    for key, flavor_names in owners(_flavors(stack)).items():
        if not key.block and key.name != "flavor":
            heading = _EVERY if key.is_common and len(flavor_names) > 1 else f"Flavor {', '.join(flavor_names)}"
            result[heading][key.name] = key.meaning
    return dict(result)


def overview(stack: str | None) -> Iterator[str]:
    """Yield the lines of :func:`sections`."""
    for heading, meanings in sections(stack).items():
        yield f"{heading}:"
        yield from (f"  {line}" for line in aligned([*meanings.items()]))
        yield ""
    yield f"Say more of one: slipway explain KEY{f' --stack {stack}' if stack else ''}"


def explain(name: str, stack: str | None) -> Iterator[str]:
    """Yield the lines of :func:`entries`."""
    for entry in entries(name, stack):
        yield f"{entry['key']}" + (f"  (kind: {entry['kind']})" if "kind" in entry else "")
        yield from wrapped(entry["meaning"])
        for title, value in entry.items():
            if title not in {"key", "kind", "meaning"}:
                yield from wrapped(value if isinstance(value, str) else ", ".join(value), title)
        yield ""


def entries(name: str, stack: str | None) -> Iterator[dict[str, Any]]:
    """Yield the explanation of each key of a name, for a stack if one is named: texts and lists of texts by title.

    Raises SlipwayError: no flavor has the key, or the stack's has not; or there is no such stack.
    """
    name = name.removeprefix(f"{NAMESPACE}:").replace("[0]", "[]")
    all_keys = owners(_flavors(stack))
    named = {
        key: flavor_names for key, flavor_names in all_keys.items() if name in {key.name, key.name.replace("[]", "")}
    }
    if not named:
        known = list(dict.fromkeys(key.name for key in all_keys))
        owner = f"stack {stack}: its flavor" if stack else "no flavor"
        verb = "has no key" if stack else "has the key"
        raise SlipwayError(f"{owner} {verb} '{one_line(name)}'{suggest(name, known)}; `slipway explain` lists the keys")
    values = read_stack(stack) if stack else None
    for key, flavor_names in named.items():
        yield dict(_entry(key, flavor_names, values))


def _flavors(stack: str | None) -> list[str]:
    if stack is None:
        return flavors.names()
    values = read_stack(stack)
    return [flavors.load(values, f"stack {stack}").flavor]


def _entry(key: Key, flavor_names: Sequence[str], values: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    yield "key", f"{NAMESPACE}:{key.name}"
    if key.kind:
        yield "kind", key.kind
    yield "meaning", key.meaning
    if flavor_names != flavors.names():
        yield "flavors", [*flavor_names]
    yield "type", key.type
    yield "default", key.default or ("required" if key.required else "none")
    if values is not None and (current := _current(values, key.name)) is not None:
        yield "this stack", one_line(current)
    if key.is_block:
        inner = (other.name for other in keys(flavor_names[0]) if _is_in(other.name, key.name))
        yield "keys", list(dict.fromkeys(inner))
        return
    others = values or {"flavor": flavor_names[-1]}
    allowed = choices(key, others, settled=() if values is None else None)
    if allowed.values:
        yield "allowed", [*allowed.values]
        yield "rule", allowed.rule
    elif text := form(key, others):
        yield "form", text


def _is_in(name: str, block: str) -> bool:
    return name.startswith((f"{block}.", f"{block}[]."))


def _current(values: Any, name: str) -> Any:
    """Return a key's value in a stack file; None if it is not set."""
    for part in name.replace("[]", "").split("."):
        if isinstance(values, list):
            values = values[0] if values else None
        values = values.get(part) if isinstance(values, dict) else None
    return values
