"""``slipway new``: a checked stack file with the values that differ from the defaults."""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from cli.keys.key import Key, keys
from stacks import checks, flavors, graph, platforms
from stacks.checks.secrets import check_clear_text
from stacks.config.stack_file import NAMESPACE, ROOT, parse, stack_file, survives_yaml
from stacks.errors import SlipwayError, one_line

_MODELINE: Final = "# yaml-language-server: $schema=stack.schema.json\n"
"""The line by which editors find the schema."""

_NAME: Final = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_LONGEST_NAME: Final = 100
"""Characters of a stack's name, as Pulumi limits it."""


def check_name(stack: str, root: Path = ROOT) -> None:
    """Refuse an invalid name, or that of an existing stack.

    Raises:
        SlipwayError: naming it.
    """
    if not _NAME.fullmatch(stack) or len(stack) > _LONGEST_NAME:
        raise SlipwayError(
            f"'{one_line(stack)}' is no name of a stack: expected at most {_LONGEST_NAME} lower-case letters, digits "
            "and . _ -, such as nccl-cu132"
        )
    path = stack_file(stack, root)
    if os.path.lexists(path):
        raise SlipwayError(f"{path.relative_to(root)} exists already: edit it, or choose another name")


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``KEY=VALUE`` words, every scalar as text; a list or a block is written as YAML's flow.

    Raises:
        SlipwayError: a word is no such assignment, is not YAML, or contradicts another.
    """
    values: dict[str, Any] = {}
    for word in assignments:
        name, equals, text = word.partition("=")
        name = name.removeprefix(f"{NAMESPACE}:")
        if not equals or not name:
            raise SlipwayError(f"'{one_line(word)}': expected KEY=VALUE, such as cuda=12.1.1 or torch.version=2.0.1")
        value: Any = text
        if text[:1] in {"[", "{"}:
            try:
                value = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes nothing but text of scalars
            except yaml.YAMLError:
                raise SlipwayError(f"{name}: '{one_line(text)}' is not YAML: close what it opens") from None
        *way, last = name.split(".")
        block = values
        for part in way:
            block = block.setdefault(part, {})
            if not isinstance(block, dict):
                raise SlipwayError(f"{name}: '{one_line(part)}' has a value already; give one of the two")
        if last in block:
            raise SlipwayError(f"{name}: is given twice; give it once")
        block[last] = value
    return values


def text(stack: str, values: Mapping[str, Any]) -> str:
    """Return the text of a stack's file: of its values, those that differ from the defaults.

    Raises:
        SlipwayError: a value is wrong; one line for each mistake.
    """
    where = f"stack {stack}"
    platforms.check_keys(values, where)
    checks.run(checks.GRAPH_RULES, graph.unlocked(values, where), where)
    differing = _differing(values, where)
    rows = keys(str(values["flavor"]))
    config = {f"{NAMESPACE}:{name}": _typed(value, name, rows) for name, value in differing.items()}
    block = _Block({"config": _Block(config)})
    written = _MODELINE + yaml.dump(block, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=110)
    check_clear_text(parse(written, where), where)
    return written


def write(stack: str, values: Mapping[str, Any], root: Path = ROOT) -> Path:
    """Write a stack's file in one step; return its path.

    Raises:
        SlipwayError: the name or a value is wrong, or the file exists.
    """
    check_name(stack, root)
    written = text(stack, values)
    path = stack_file(stack, root)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new-", encoding="utf-8") as file:
        file.write(written)
        file.flush()
        Path(file.name).chmod(0o644)
        try:
            os.link(file.name, path)
        except FileExistsError:
            raise SlipwayError(f"{path.relative_to(root)} exists already: edit it, or choose another name") from None
    return path


def _differing(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values without those equal to the defaults, and without blocks that are then empty."""
    config = flavors.load(values, where).model_dump()
    differing = copy.deepcopy(dict(values))
    for way in [way for way in _ways(values) if way != ("flavor",)]:
        fewer = _without(differing, way)
        try:
            if flavors.load(fewer, where).model_dump() == config:
                differing = fewer
        except SlipwayError:
            continue  # it is required
    return {"flavor": differing.pop("flavor"), **differing}


def _ways(values: Mapping[str, Any], *way: str) -> Iterator[tuple[str, ...]]:
    """Yield the way to each value, those in a block before the block itself."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _ways(value, *way, key)
        yield (*way, key)


def _without(values: Mapping[str, Any], way: Sequence[str]) -> dict[str, Any]:
    first, *rest = way
    if first not in values:
        return dict(values)
    inner = _without(values[first], rest) if rest else None
    return {key: inner if key == first else value for key, value in values.items() if key != first or inner}


def _typed(value: Any, name: str, rows: Sequence[Key]) -> Any:
    """Return a value with true, false and numbers typed where the key takes them; others stay text."""
    if isinstance(value, Mapping):
        names = {row.name for row in rows}
        return {
            key: _typed(item, f"{name}.{key}" if f"{name}.{key}" in names else f"{name}.<name>", rows)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_typed(item, f"{name}[]", rows) for item in value]
    types = {part for row in rows if row.name == name for part in row.type.split(" or ")}
    if value in types & {"true", "false"}:
        return value == "true"
    if "a number" in types and re.fullmatch(r"0|[1-9][0-9]{0,14}", value):
        return int(value)
    return value


_TEXT: Final = "tag:yaml.org,2002:str"
"""YAML's tag of text."""


class _Dumper(yaml.SafeDumper):
    """Writes each value on one line where it can, and quotes text that YAML would read as something else."""


class _Block(dict[str, Any]):
    """A mapping with a line for each key, however short it is."""


def _block_node(dumper: yaml.SafeDumper, value: _Block) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=False)


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    resolved: str = dumper.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_TEXT, value, style=None if resolved == _TEXT and survives_yaml(value) else '"')


_Dumper.add_representer(_Block, _block_node)
_Dumper.add_representer(str, _text_node)
