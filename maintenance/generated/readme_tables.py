"""The tables in the images' READMEs: keys, from the models, and build arguments, from the Dockerfiles and the models.

A table of keys follows a line that names its flavors, ``<!-- keys: base nccl -->``. A table of the arguments of the
Dockerfile in the same folder follows ``<!-- arguments -->``, and one of the images of a stack ``<!-- images: efa -->``.
Each ends at an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from cli import text_table
from cli.keys.key import owners
from containers.dockerfile import declarations
from containers.dockerfile.declarations import ArgumentComment
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import NAMESPACE, ROOT
from stacks.lock import REFRESH_ARG
from stacks.plan import MIRROR_ARGS
from stacks.spec import CONTEXT, PRODUCT_ARG, Sibling, label_name

MARK: Final = re.compile(r"(?P<mark><!-- keys: (?P<flavors>[a-z ]+) -->\n)(?:\|.*\n)*")
"""The line that names the flavors, and the table below it."""

ARGUMENTS: Final = re.compile(r"(?P<mark><!-- arguments -->\n)(?:\|.*\n)*")
"""The line that stands above a table of arguments, and the table."""

IMAGES: Final = re.compile(r"(?P<mark><!-- images: (?P<stack>[a-z0-9-]+) -->\n)(?:\|.*\n)*")
"""The line that names a stack, and the table of its images below it."""

_KEY: Final = re.compile(rf"{NAMESPACE}:[A-Za-z0-9.]+(?:\[\]\.[A-Za-z0-9.]+)?")

_SHARED: Final = {
    **{
        name: ArgumentComment(f"{NAMESPACE}:mirrors.{MirrorsConfig.model_fields[field].alias}", "")
        for name, field in MIRROR_ARGS.items()
    },
    PRODUCT_ARG: ArgumentComment(
        "the stack",
        "This very product, by digest, where the registry has it already: it is taken as it is, and nothing is built.",
    ),
    REFRESH_ARG: ArgumentComment(
        "`slipway lock --refresh`",
        "A date, or any text: the distribution's packages that the parent has are upgraded, with another text anew.",
    ),
}
"""Arguments that Slipway passes to every Dockerfile that declares them."""


def table(names: Sequence[str]) -> str:
    """Return all keys of some flavors but those that every stack has, as a table in Markdown."""
    several = len(names) > 1
    head = ("Key", *(["Flavors"] if several else []), "Default", "Meaning")
    rows = (
        (
            f"`{NAMESPACE}:{key.name}`",
            *([", ".join(flavor_names)] if several else []),
            f"`{key.default}`" if key.default else "",
            key.meaning,
        )
        for key, flavor_names in owners(names).items()
        if not key.is_common and key.type != "a block of keys"
    )
    return text_table.markdown(head, *rows)


def arguments(path: Path) -> str:
    """Return all arguments of a Dockerfile as a table in Markdown, those described in it first.

    Raises SlipwayError: an argument has no description, or its description names a key that no flavor has.
    """
    comments = declarations.argument_comments(path)
    rows: dict[bool, list[Sequence[str]]] = {True: [], False: []}
    for name, default in declarations.arguments(path).items():
        # The first of several numbered arguments describes all of them.
        comment = comments.get(name) or comments.get(re.sub(r"[0-9]+", "1", name))
        description = comment or _shared(name) or ArgumentComment("", "")
        set_by = description.set_by or (
            f"{NAMESPACE}:mirrors.downloads" if (default or "").startswith("https://") else ""
        )
        meaning = " ".join(_meaning(name, path) for name in _KEY.findall(set_by))
        meaning = description.meaning or meaning
        if not meaning:
            raise SlipwayError(f"{path}: nothing says what {name} means: write '# {name} ...' above its ARG")
        default_cell = {None: "none", "": "empty"}.get(default, f"`{default}`")
        row = f"`{name}`", default_cell, _KEY.sub(r"`\g<0>`", set_by) or "by hand", meaning
        rows[comment is not None].append(row)
    return text_table.markdown(("Argument", "Default", "Set by", "Meaning"), *rows[True], *rows[False])


def images(stack: str) -> str:
    """Return the images of a stack as a table in Markdown, parents first: what each is built on and takes files from.

    Raises SlipwayError: there is no such stack, or its file is wrong.
    """
    rows = []
    for spec in plan.resolve(stack)[1]:
        parents = {
            argument: parent.image if isinstance(parent, Sibling) else f"`{parent.reference}`"
            for argument, parent in spec.parents.items()
        }
        rows.append((spec.name, parents.pop("BASE_IMAGE", ""), ", ".join(dict.fromkeys(parents.values()))))
    return text_table.markdown(("Image", "Built on", "Takes files from"), *rows)


def _shared(name: str) -> ArgumentComment | None:
    if label := label_name(name):
        return ArgumentComment("the stack", f"The label `{label}`.")
    return _SHARED.get(name)


@cache
def _meanings() -> Mapping[str, str]:
    """Return the meaning of each key in its first flavor."""
    meanings: dict[str, str] = {}
    for key in owners(flavors.names()):
        meanings.setdefault(f"{NAMESPACE}:{key.name}", key.meaning)
    return meanings


def _meaning(name: str, path: Path) -> str:
    if name not in _meanings():
        raise SlipwayError(f"{path}: no flavor has the key {name}, which the description of an argument names")
    return _meanings()[name]


def readmes(root: Path = ROOT) -> dict[Path, str]:
    """Return the READMEs of the images that have such tables, with their current text."""
    pages = {}
    for path in sorted((root / CONTEXT).glob("**/README.md")):
        text = path.read_text(encoding="utf-8")
        if any(mark.search(text) for mark in (MARK, ARGUMENTS, IMAGES)):
            keys = MARK.sub(lambda match: match["mark"] + table(match["flavors"].split()), text)
            families = IMAGES.sub(lambda match: match["mark"] + images(match["stack"]), keys)
            dockerfile_path = path.with_name("Dockerfile")
            pages[path] = ARGUMENTS.sub(lambda match: match["mark"] + arguments(dockerfile_path), families)  # noqa: B023 - called at once
    return pages
