"""``docs/reference/configuration.md``: every key of a stack file, from the models."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cli import text_table
from cli.keys.key import Key, keys, owners
from stacks import flavors
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE, ROOT

PATH: Final = ROOT / "docs" / "reference" / "configuration.md"
"""The page's file."""

ADVANCED: Final = {
    *("tagSuffix", "compression", "warm", "mirrors", "buildSecrets", "runsOn", "engines", "buildOn", "budgets"),
    *("extraTags", "trustRegistry", "trust", "unverified"),
    *("cmake", "march", "tagFields", "compilerCache", "maxJobs", "cacheKey", "magma", "micromamba", "hpcx"),
}
"""Keys in no block that a stack needs for its site, machines or compilers, and not for the content of its images."""

_HEAD: Final = """\
# Configuration

<!-- Generated from the models of stacks/config and stacks/flavors by `python -m maintenance docs`. -->

A stack file is `stacks/Pulumi.<stack>.yaml`. `slipway new` writes one, `slipway check` validates all, and
`slipway explain KEY --stack STACK` says what a key may be in a stack. Editors check and complete the files by
`stacks/stack.schema.json`. Every key but `{namespace}:flavor` is optional.

The first tables have the keys of [every stack](#every-stack), then those of each flavor: {flavors}. The keys that most
stacks never need come after "Advanced".
A block's type links to the table of its keys. In names, `[]` is a place in a list and `<name>` a name of your choice.
"""


def text() -> str:
    """Return the page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    names = flavors.names()
    flavor = Key("flavor", ", ".join(names), None, StackConfig.model_fields["flavor"].description or "", required=True)
    flavors_of = {flavor: names} | {
        key: flavor_names for key, flavor_names in owners(names).items() if key.name != "flavor"
    }
    blocks: defaultdict[str, list[Key]] = defaultdict(list)
    for key in flavors_of:
        if key.block:
            blocks[f"`{NAMESPACE}:{key.block}`" + (f" ({key.kind})" if key.kind else "")].append(key)
    links = ", ".join(f"[{name}](#{_anchor(f'Flavor {name}')})" for name in names)
    yield _HEAD.format(namespace=NAMESPACE, flavors=links)
    for title, rows in _outer(flavors_of, names).items():
        yield f"## {title}\n\n{_table([key for key in rows if key.name not in ADVANCED], blocks)}"
        if advanced := [key for key in rows if key.name in ADVANCED]:
            yield f"Advanced:\n\n{_table(advanced, blocks)}"
    yield "## Blocks\n"
    for title, rows in sorted(blocks.items()):
        several = any(flavors_of[key] != names for key in rows)
        yield f"### {title}\n\n{_table(rows, blocks, flavors_of if several else None)}"


def _outer(flavors_of: Mapping[Key, Sequence[str]], names: Sequence[str]) -> dict[str, list[Key]]:
    """Return the keys in no block by their table's title: those of every stack, then those of each flavor."""
    outer = [key for key in flavors_of if not key.block]
    common = [key for key in outer if key.is_common and len(flavors_of[key]) > 1]
    own = {f"Flavor {name}": [key for key in keys(name) if key in outer and key not in common] for name in names}
    return {"Every stack": common, **own}


def _table(
    rows: Sequence[Key], blocks: Mapping[str, Sequence[Key]], flavors_of: Mapping[Key, Sequence[str]] | None = None
) -> str:
    """Return a table of keys; ``flavors_of`` adds a column with the flavors of each."""
    cells = [
        (
            f"`{NAMESPACE}:{key.name}`",
            *([", ".join(flavors_of[key])] if flavors_of else []),
            _linked_type(key, blocks) if key.is_block else key.type,
            f"`{key.default}`" if key.default else "required" if key.required else "",
            key.meaning,
        )
        for key in rows
    ]
    return text_table.markdown(("Key", *(["Flavors"] if flavors_of else []), "Type", "Default", "Meaning"), *cells)


def _linked_type(key: Key, blocks: Mapping[str, Sequence[Key]]) -> str:
    """Return a block's type with a link to the table of its keys, or with one for each kind."""
    pattern = re.compile(re.escape(key.name) + r"(\[\]|\.<name>)?")
    inner = {title: rows[0].kind for title, rows in blocks.items() if pattern.fullmatch(rows[0].block)}
    kinds = {title: kind for title, kind in inner.items() if key.kind in {"", kind}}
    if len(kinds) == 1:
        return f"[{key.type}](#{_anchor(*kinds)})"
    return f"{key.type}: {', '.join(f'[{kind}](#{_anchor(title)})' for title, kind in kinds.items())}"


def _anchor(title: str) -> str:
    """Return a heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
