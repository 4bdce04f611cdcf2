"""Stack files as text: their places, their content, and values that YAML would silently change.

Pulumi parses the YAML before a program gets its configuration, and an unquoted ``3.10`` is then 3.1. So this module
reads each scalar as text. It refuses a plain scalar that YAML would change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from containers.errors import SlipwayError, one_line, suggest
from stacks import places

ROOT = places.ROOT
"""See :data:`stacks.places.ROOT`."""

NAMESPACE = "slipway"
"""The project's name in Pulumi.yaml, hence the prefix of its configuration keys."""

_TOP = ("config", "secretsprovider", "encryptedkey", "encryptionsalt", "environment")
"""The keys of a stack's file, all but the first Pulumi's own (pulumi/pulumi v3.259.0, ProjectStack in
sdk/go/common/workspace/project.go)."""

_PREFIX = "Pulumi."

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""A stack's name, as Pulumi has it (pulumi/pulumi v3.259.0, sdk/go/common/tokens/stack_name.go:51-81). It becomes a
part of tags, resources and scripts."""
_LONGEST_FILE = 300
"""Characters of a file's path that an error shows; a file's name has at most 255 bytes."""

_MOST_VALUES = 100_000
"""Values of a stack's file, those of aliases too."""
_MOST_DEPTH = 500
"""Brackets in one another; at some twice as many Python's own limit ends what reads them."""
_HINTS = {"'\\t'": ": indent with spaces", "another document": ": remove its line ---, and what follows"}
"""What to do about problems of PyYAML's."""
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

# How Pulumi's YAML reader (Go, yaml.v3) takes a plain scalar for a number or a date: its resolve.go, and the
# YAML 1.1 forms it still reads (leading-zero octal, underscores).
_NUMBER = re.compile(r"[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_SURVIVES = re.compile(r"0|-?[1-9][0-9]{0,14}|-?(0|[1-9][0-9]{0,7})\.[0-9]{0,6}[1-9]")


def stack_file(stack: str, root: Path = ROOT) -> Path:
    """Return the path of a stack's YAML, which need not exist."""
    return root / "stacks" / f"{_PREFIX}{stack}.yaml"


def stack_names(root: Path = ROOT) -> list[str]:
    """Return the names of all stacks that have a file, sorted; see :func:`misnamed` for other files."""
    return sorted(filter(_NAME.fullmatch, _written(root)))


def misnamed(root: Path = ROOT) -> list[str]:
    """Return a line for each file whose stack Pulumi would refuse for its name."""
    return [_refusal(name) for name in sorted(_written(root)) if not _NAME.fullmatch(name)]


def _written(root: Path) -> Iterator[str]:
    """Yield what stands for a stack's name in each file's."""
    for file in (root / "stacks").glob(f"{_PREFIX}*.yaml"):
        if file.is_file():
            yield file.name.removeprefix(_PREFIX).removesuffix(".yaml")


def _refusal(name: str) -> str:
    file = one_line(str(stack_file(name, Path())), _LONGEST_FILE)
    length = f"{len(name)} character{'' if len(name) == 1 else 's'}"
    return (
        f"{file}: Pulumi refuses the stack's name '{one_line(name)}', of {length}; it takes 1 to 100 of "
        "A-Z a-z 0-9 . _ -: rename the file"
    )


def read_stack(stack: str, root: Path = ROOT) -> dict[str, Any]:
    """Read a stack's own keys, without the ``slipway:`` prefix, every scalar as the text that is written.

    Raises SlipwayError: there is no such stack, the file is not YAML, it repeats a key, or a value is not quoted and
    YAML would change it.
    """
    path = stack_file(stack, root)
    if not os.path.isfile(path):  # noqa: PTH113 - false for a name that no file can have, too
        names = stack_names(root)
        raise SlipwayError(
            f"there is no stack '{one_line(stack)}'{suggest(stack, names)}; the stacks are: {', '.join(names)}"
        )
    if not _NAME.fullmatch(stack):
        raise SlipwayError(_refusal(stack))
    where = str(path.relative_to(root))
    try:
        return parse(path.read_text(encoding="utf-8"), where)
    except UnicodeDecodeError as error:
        raise SlipwayError(f"{where}: byte {error.start + 1} is not UTF-8: save the file as UTF-8") from None


def other_settings(stack: str, namespaces: Collection[str], root: Path = ROOT) -> dict[str, Any]:
    """Read the keys that a stack's file has in other namespaces, by their full names; it is as of ``read_stack``."""
    path = stack_file(stack, root)
    text = path.read_text(encoding="utf-8")
    if not re.search(rf"\b(?:{'|'.join(namespaces)}):\w", text):  # parsing it again costs more
        return {}
    config = _config(text, str(path.relative_to(root)))
    return {key: value for key, value in config.items() if config_key(key)[0] in namespaces}


def config_key(text: str) -> tuple[str, str]:
    """Return the namespace and the name of a key, such as ``aws`` and ``region`` of ``aws:region``."""
    namespace, _, name = text.partition(":")
    return namespace, name


def parse(text: str, where: str) -> dict[str, Any]:
    """Read the ``slipway:`` keys of a stack file's ``text``; ``where`` names the file in errors."""
    prefix = f"{NAMESPACE}:"
    return {key[len(prefix) :]: value for key, value in _config(text, where).items() if key.startswith(prefix)}


def _config(text: str, where: str) -> dict[str, Any]:
    too_deep = SlipwayError(f"{where}: not YAML that a stack can have: it is nested too deep")
    if _depth(text) > _MOST_DEPTH:  # PyYAML finds that out in minutes
        raise too_deep
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise too_deep from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{where}:{mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or error
        hint = next((hint for part, hint in _HINTS.items() if part in str(problem)), "")
        raise SlipwayError(f"{at}: not YAML: {' '.join(str(problem).split())}{hint}") from None
    try:
        if node is not None and _size(node, {}) > _MOST_VALUES:
            raise SlipwayError(f"{where}: more than {_MOST_VALUES} values: its aliases (*name) multiply")
        document = {} if node is None else _value(node, where, "")
    except RecursionError:
        raise SlipwayError(f"{where}: an alias (*name) is inside the value that it refers to") from None
    if not isinstance(document, dict):
        raise SlipwayError(f"{where}: expected a mapping with the key 'config'")
    _refuse_unread(node, where)
    config = document.get("config") or {}
    if not isinstance(config, dict):
        raise SlipwayError(f"{where}: 'config' must be a mapping of {NAMESPACE}:<key> to values")
    for key in config:
        namespace, name = config_key(key)
        if name and namespace != NAMESPACE and suggest(namespace, [NAMESPACE]):
            raise SlipwayError(f"{where}: unknown key '{one_line(key)}' (did you mean '{NAMESPACE}:{one_line(name)}'?)")
    return config


def _refuse_unread(node: yaml.Node | None, where: str) -> None:
    """Refuse keys that nobody reads: beside ``config``, or in it without a namespace."""
    keys = node.value if isinstance(node, yaml.MappingNode) else ()
    above = "" if any(key.value == "config" for key, _ in keys) else "write 'config:' above it, and "
    for key, value in keys:
        at, name = f"{where}:{key.start_mark.line + 1}", one_line(str(key.value))
        if key.value not in _TOP:
            mended = f"{above}indent it below 'config:': '  {_full(name)}'"
            if not str(key.value).startswith(f"{NAMESPACE}:") and (near := suggest(name, _TOP)):
                mended = f"beside 'config' are Pulumi's own keys alone{near}"
            raise SlipwayError(f"{at}: nothing reads the key '{name}' in column {key.start_mark.column}: {mended}")
        for inner, _ in value.value if key.value == "config" and isinstance(value, yaml.MappingNode) else ():
            if ":" not in str(inner.value):
                written = one_line(str(inner.value))
                raise SlipwayError(
                    f"{where}:{inner.start_mark.line + 1}: nothing reads the key '{written}', which has no namespace: "
                    f"write '{_full(written)}'"
                )


def _full(name: str) -> str:
    """Return a key with the namespace, once."""
    return f"{NAMESPACE}:{name.removeprefix(f'{NAMESPACE}:').removeprefix(f'{NAMESPACE}.')}"


def _depth(text: str) -> int:
    """Return how deep brackets are nested at most; those in quotes and comments count too."""
    return max(accumulate(_BRACKETS.get(character, 0) for character in text), default=0)


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return how many values a node stands for. An alias is the node that it refers to, and counts each time.

    Raises RecursionError: an alias is inside of its own node.
    """
    if id(node) not in sizes:
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        inner = parts if isinstance(node, yaml.CollectionNode) else []
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in inner)
    return sizes[id(node)]


def survives_yaml(text: str) -> bool:
    """Return whether an unquoted scalar is the same text after YAML has read it."""
    return not _DATE.fullmatch(text) and (not _NUMBER.fullmatch(text) or bool(_SURVIVES.fullmatch(text)))


def _value(node: yaml.Node, where: str, key: str) -> Any:
    """Turn a YAML node into mappings, lists and text."""
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = str(key_node.value)
            if key_node.tag == "tag:yaml.org,2002:merge" and f"{key}:".startswith(("config:", f"config.{NAMESPACE}:")):
                raise SlipwayError(
                    f"{where}:{key_node.start_mark.line + 1}: a merge (<<) is not read: write its keys out, "
                    "or use an alias (*name) for a whole value"
                )
            if name in result:
                raise SlipwayError(f"{where}:{key_node.start_mark.line + 1}: the key '{one_line(name)}' is repeated")
            result[name] = _value(value_node, where, f"{key}.{name}" if key else name)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, where, f"{key}[{index}]") for index, item in enumerate(node.value)]
    return _scalar(node, where, key)


def _scalar(node: yaml.Node, where: str, key: str) -> str | None:
    text = str(node.value)
    if getattr(node, "style", None) is not None:
        return text
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if not survives_yaml(text):
        name = key.removeprefix("config.")
        raise SlipwayError(
            f"{where}:{node.start_mark.line + 1}: {name}: YAML reads the unquoted {text} as a number or a date "
            f'and would change it; quote it: "{text}"'
        )
    return text
