"""``slipway check``: each stack, and conflicts between stacks."""

from __future__ import annotations

import sys

from stacks import plan
from stacks.checks.collisions import StackImages, collisions, shared_repositories, shared_tags
from stacks.config.stack_file import ROOT, stack_names
from stacks.errors import SlipwayError
from stacks.identity.content import Contents
from stacks.identity.context import Folder
from stacks.spec import CONTEXT


def check() -> list[str]:
    """Print a line for each valid stack, and warnings on standard error; return the mistakes, each once."""
    built, mistakes = [], []
    owned: dict[str, frozenset[str]] = {}
    tagged: dict[str, frozenset[str]] = {}
    contents = Contents(Folder(ROOT / CONTEXT))
    for name in stack_names():
        try:
            # The history of an image decides its tag's commit, and no mistake.
            planned = plan.make(name, contents=contents, search=False)
        except SlipwayError as error:
            mistakes.append(str(error))
            continue
        for warning in planned.config.warnings:
            print(f"warning: {name}: {warning}", file=sys.stderr)
        specs = [image.spec for image in planned.images]
        built.append(StackImages(name, planned.config.registry.repository, specs))
        if planned.config.publish:
            owned[name] = planned.config.registry.created_repositories(spec.published_name for spec in specs)
            tagged[name] = frozenset(
                f"{image.repository}:{tag}" for image in planned.images for tag in image.extra_tags
            )
        products = sum(spec.product for spec in specs)
        images = len(planned.references) - len({spec.published_name for spec in specs if spec.product})
        platforms = f" for {len(planned.config.platforms)} platforms" if planned.indexes else ""
        source = f" from {products} build products" if products else ""
        print(f"{name}: {images} image{'' if images == 1 else 's'}{platforms}{source}, ok")
    mistakes += collisions(built) + shared_repositories(owned) + shared_tags(tagged)
    return list(dict.fromkeys(mistakes))  # a mistake of the branch is one of every stack
