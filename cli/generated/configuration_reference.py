"""``docs/reference/configuration.md``: every key of a stack file, from the models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from cli.keys.key import Key, keys
from stacks import flavors
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE, ROOT

PATH: Final = ROOT / "docs" / "reference" / "configuration.md"
"""Where the reference is."""

_HEAD: Final = """\
# Configuration

<!-- Generated from the models of stacks/config and stacks/flavors by `slipway docs`. -->

A stack file is `stacks/Pulumi.<stack>.yaml`. `slipway new` writes one, `slipway check` validates all, and
`slipway explain KEY --stack STACK` says what a key may be in a stack. Editors check and complete the files by
`stacks/stack.schema.json`. Every key but `{namespace}:flavor` is optional. In names, `[]` is a place in a list and
`<name>` a name of your choice.
"""


def text() -> str:
    """Return the page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD.format(namespace=NAMESPACE)
    names = flavors.names()
    owners: defaultdict[Key, list[str]] = defaultdict(list)
    for name in names:
        for key in keys(name):
            owners[key].append(name)
    common = [key for key, having in owners.items() if key.is_common and len(having) > 1]
    flavor = Key("flavor", ", ".join(names), None, StackConfig.model_fields["flavor"].description or "", required=True)
    yield "## Every stack\n"
    yield from _table([flavor, *(key for key in common if key.name != "flavor")])
    for name in names:
        if rows := [key for key in keys(name) if key not in common and key.name != "flavor"]:
            yield f"## Flavor {name}\n"
            yield from _table(rows)


def _table(rows: Iterable[Key]) -> Iterator[str]:
    yield "| Key | Type | Default | Meaning |"
    yield "| --- | --- | --- | --- |"
    for key in rows:
        name = f"`{NAMESPACE}:{key.name}`" + (f" ({key.kind})" if key.kind else "")
        default = f"`{key.default}`" if key.default else "required" if key.required else ""
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (name, key.type, default, key.meaning))} |"
    yield ""
