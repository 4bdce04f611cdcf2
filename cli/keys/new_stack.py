"""``slipway new``: a checked stack file with the given values, and a tag that no other stack has."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from cli.keys.key import Key, keys
from containers.errors import SlipwayError, one_line
from stacks import checks, graph, platforms
from stacks.checks import ec2_site, trust
from stacks.checks.collisions import StackImages, collisions, shared_repositories, shared_runners, shared_tags
from stacks.checks.secrets import check_clear_text
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE, ROOT, parse, read_stack, stack_file, stack_names, survives_yaml
from stacks.places import CODE
from stacks.tags import check_tail

_SCHEMA: Final = os.path.relpath(CODE / "stacks" / "stack.schema.json", ROOT / "stacks")
_MODELINE: Final = f"# yaml-language-server: $schema={_SCHEMA}\n"
"""The line by which editors find the schema."""

_NAME: Final = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_LONGEST_NAME: Final = 100
"""Characters of a stack's name, as Pulumi limits it."""


def check_name(stack: str, root: Path = ROOT) -> None:
    """Refuse an invalid name, or that of an existing stack. Raises SlipwayError: naming it."""
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

    Raises SlipwayError: a word is no such assignment, is not YAML, or contradicts another.
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


def merged(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the other ones in their place, block by block."""
    result = dict(values)
    for key, value in other.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return result


def text(stack: str, values: Mapping[str, Any]) -> str:
    """Return the text of a stack's file: all of its values, as a default may change later.

    Raises SlipwayError: a value is wrong; one line for each mistake.
    """
    where = f"stack {stack}"
    platforms.check_keys(values, where)
    # The lock is written after the stack. So are the keys that another tool's file lacks.
    later = {trust.unlocked_parents, ec2_site.unfilled}
    rules = [rule for rule in (*checks.GRAPH_RULES, *checks.BUILD_RULES) if rule not in later]
    checks.run(rules, graph.unlocked(values, where), where)
    rows = keys(str(values["flavor"]))
    ordered = {"flavor": values["flavor"], **values}
    config = {f"{NAMESPACE}:{name}": _typed(value, name, rows) for name, value in ordered.items()}
    block = _Block({"config": _Block(config)})
    written = _MODELINE + yaml.dump(block, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=110)
    check_clear_text(parse(written, where), where)
    return written


def write(stack: str, values: Mapping[str, Any], root: Path = ROOT) -> Path:
    """Write a stack's file in one step; return its path.

    Where another stack would give equal tags to other images, the file has a ``tagSuffix`` made of the stack's name;
    where another has the default ``namespace`` of runners in a cluster, one made likewise.

    Raises:
        SlipwayError: the name or a value is wrong, another stack has the same tags or repositories, or the file exists.
    """
    check_name(stack, root)
    text(stack, values)  # its own mistakes come first
    written = text(stack, _beside_others(stack, values, root))
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


def _beside_others(stack: str, values: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """Return values that go with the other stacks, as they are now.

    Raises SlipwayError: another stack has the same tags for other images, or creates the same repository.
    """
    others = []
    for name in stack_names(root):
        with contextlib.suppress(SlipwayError):  # `slipway check` names it
            others.append(_built(name, read_stack(name, root), root))
    mistakes = _mistakes(_built(stack, values, root), others)
    if mistakes and "tagSuffix" not in values:
        values = {**values, "tagSuffix": _tail(stack)}
        mistakes = _mistakes(_built(stack, values, root), others)
    if mistakes:
        raise SlipwayError("\n".join(mistakes))
    runners = values.get("runners")
    if isinstance(runners, Mapping) and runners.get("kind") == "kubernetes" and "namespace" not in runners:
        ours = _built(stack, values, root)[1]
        if any(shared_runners({stack: ours, built.stack: config}) for built, config in others):
            namespace = f"slipway-{re.sub('[._]', '-', stack)}"[:45].rstrip("-")  # ARC's chart takes no more
            return {**values, "runners": {**runners, "namespace": namespace}}
    return values


def _built(stack: str, values: Mapping[str, Any], root: Path) -> tuple[StackImages, StackConfig]:
    resolved = graph.unlocked(values, f"stack {stack}", root)
    return StackImages(stack, resolved.config.registry.repository, resolved.specs), resolved.config


def _mistakes(ours: tuple[StackImages, StackConfig], others: Iterable[tuple[StackImages, StackConfig]]) -> list[str]:
    """Return what `slipway check` would say of a stack beside each of the others."""
    return [
        line
        for theirs in others
        for line in (
            *collisions([theirs[0], ours[0]]),
            *shared_repositories({built.stack: _created(built, config) for built, config in (theirs, ours)}),
            *shared_tags({built.stack: _moved(built, config) for built, config in (theirs, ours)}),
        )
    ]


def _created(built: StackImages, config: StackConfig) -> frozenset[str]:
    names = (spec.published_name for spec in built.specs)
    return config.registry.created_repositories(names) if config.publish else frozenset()


def _moved(built: StackImages, config: StackConfig) -> frozenset[str]:
    names = {spec.published_name for spec in built.specs if not spec.product} if config.publish else ()
    return frozenset(f"{built.repository}/{name}:{tag}" for name in names for tag in config.extra_tags)


def _tail(stack: str) -> str:
    """Return a tag's last part that is made of a stack's name."""
    tail = re.sub(r"[^A-Za-z0-9_.]", "_", stack)
    try:
        return check_tail(tail)
    except ValueError:  # it begins with a digit, or looks like a field of the tag
        return f"stack_{tail}"


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


_TEXT, _MAPPING = "tag:yaml.org,2002:str", "tag:yaml.org,2002:map"
"""YAML's tag of text."""


class _Dumper(yaml.SafeDumper):
    """Writes each value on one line if it can, and quotes text that YAML would read as something else."""


class _Block(dict[str, Any]):
    """A mapping with a line for each key, however short it is."""


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    resolved: str = dumper.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_TEXT, value, style=None if resolved == _TEXT and survives_yaml(value) else '"')


_Dumper.add_representer(_Block, lambda dumper, value: dumper.represent_mapping(_MAPPING, value, flow_style=False))
_Dumper.add_representer(str, _text_node)
