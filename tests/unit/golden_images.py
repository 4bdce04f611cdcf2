"""What every stack builds, in a form to keep in git, and the command that writes it.

``python -m tests.unit.golden_images`` brings ``golden_images.json`` and the record ``stacks/fingerprints.txt`` up to date.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stacks import plan, tags
from stacks.config.fetching.mirrors import MIRRORS_VARIABLE
from stacks.config.registries.this_machine import REGISTRY_VARIABLE
from stacks.config.stack_file import ROOT, stack_names
from stacks.differences import differences
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.older_trees import all_fingerprints
from stacks.identity.older_trees import fingerprint_record as record
from stacks.spec import ImageSpec, Sibling

FILE = Path(__file__).with_suffix(".json")

Golden = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By stack and image: the tag's suffix, and parts of ``show --json``.

What depends on the branch or the commit is left out: the tags' revisions.
"""


@cache
def plans() -> Mapping[str, plan.Plan]:
    """Return the plans of the stacks of this checkout. History decides their tags' revisions alone."""
    contents = CheckoutContents(contexts(ROOT))
    return {stack: plan.make(stack, contents=contents, search=False) for stack in stack_names()}


def golden_images() -> Golden:
    """Return what the stacks of this checkout build."""
    return {stack: _images(planned) for stack, planned in plans().items()}


def read() -> Golden:
    """Return the kept images."""
    golden: Golden = json.loads(FILE.read_text(encoding="utf-8"))
    return golden


def changes(before: Golden, after: Golden) -> list[str]:
    """Return a line for each value that differs: stack, image and field, then the old one and the new one."""
    return [" ".join(way) + f": {old} -> {new}" for way, old, new in differences(before, after)]


def text(golden: Golden) -> str:
    """Return the images as JSON with a line for each of their parts, so that git shows what changes."""
    return _object(golden, depth=3) + "\n"


def _object(value: Any, depth: int, indent: str = "") -> str:
    if not depth:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    items = (f"{inner}{json.dumps(key)}: {_object(item, depth - 1, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def fingerprints() -> record.Record:
    """Return the record of what the stacks of this checkout build."""
    return {
        stack: all_fingerprints({image.spec.name: image.content for image in planned.images})
        for stack, planned in plans().items()
    }


def _images(planned: plan.Plan) -> dict[str, dict[str, Any]]:
    specs = {image.spec.name: image.spec for image in planned.images}
    return {image["name"]: _identity(image, specs[image["name"]]) for image in planned.as_json()["images"]}


def _identity(image: Mapping[str, Any], spec: ImageSpec) -> dict[str, Any]:
    parents = {
        argument: reference.rpartition(":")[0] if isinstance(spec.parents[argument], Sibling) else reference
        for argument, reference in image["parents"].items()
    }
    build = {key: image[key] for key in ("context", "dockerfile", "target", "product", "platform")}
    parts = {"build": build, "parents": parents, "args": image["args"], "labels": image["labels"]}
    return {"tag": tags.parse(image["tag"])[1].render(), **{name: part for name, part in parts.items() if part}}


if __name__ == "__main__":
    for variable in (REGISTRY_VARIABLE, MIRRORS_VARIABLE):  # what a machine sets for itself is no part of a stack
        os.environ.pop(variable, None)
    for file, content in {FILE: text(golden_images()), ROOT / record.FILE: record.text(fingerprints())}.items():
        file.write_text(content, encoding="utf-8")
        sys.stdout.write(f"{file.relative_to(ROOT)}: written\n")
