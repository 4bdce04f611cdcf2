"""What every stack builds, in a form to keep in git, and the command that writes it.

``python -m tests.unit.golden_images`` brings ``golden_images.json`` and the record ``stacks/fingerprints.txt`` up to date.
"""

from __future__ import annotations

import hashlib
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
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.older_trees import all_fingerprints
from stacks.identity.older_trees import fingerprint_record as record
from stacks.spec import ImageSpec, Sibling

FILE = Path(__file__).with_suffix(".json")

Golden = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By stack and image: the tag's suffix, and 16 digits of a SHA-256 of each part of ``show --json``.

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


def text(golden: Golden) -> str:
    """Return the images as JSON with a line for each, so that git shows which ones change."""
    stacks = [
        f"{json.dumps(stack)}: {{"
        + ",".join(f"\n  {json.dumps(name)}: {json.dumps(image)}" for name, image in images.items())
        + "}"
        for stack, images in golden.items()
    ]
    return "{\n" + ",\n".join(stacks) + "\n}\n"


def fingerprints() -> record.Record:
    """Return the record of what the stacks of this checkout build."""
    return {
        stack: all_fingerprints({image.spec.name: image.content for image in planned.images})
        for stack, planned in plans().items()
    }


def _images(planned: plan.Plan) -> dict[str, dict[str, str]]:
    specs = {image.spec.name: image.spec for image in planned.images}
    return {image["name"]: _identity(image, specs[image["name"]]) for image in planned.as_json()["images"]}


def _identity(image: Mapping[str, Any], spec: ImageSpec) -> dict[str, str]:
    parents = {
        argument: reference.rpartition(":")[0] if isinstance(spec.parents[argument], Sibling) else reference
        for argument, reference in image["parents"].items()
    }
    build = {key: image[key] for key in ("context", "dockerfile", "target", "product", "platform")}
    parts = {"args": image["args"], "labels": image["labels"], "parents": parents, "build": build}
    return {"tag": tags.parse(image["tag"])[1].render()} | {key: _hash(part) for key, part in parts.items()}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    for variable in (REGISTRY_VARIABLE, MIRRORS_VARIABLE):  # what a machine sets for itself is no part of a stack
        os.environ.pop(variable, None)
    for file, content in {FILE: text(golden_images()), ROOT / record.FILE: record.text(fingerprints())}.items():
        file.write_text(content, encoding="utf-8")
        sys.stdout.write(f"{file.relative_to(ROOT)}: written\n")
