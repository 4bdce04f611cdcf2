"""``python -m ci resolve``: the stack and the image that a Dockerfile's folder, arguments and tag suffix mean.

These are the inputs of the reusable workflow of coreweave/ml-containers. Here they build nothing themselves: they are a
question to the one graph, and exactly one of its images must be the answer.
"""

from __future__ import annotations

import argparse
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ci import actions
from ci.verbs.affected import runner
from stacks import plan
from stacks.config.stack_file import stack_names
from stacks.errors import SlipwayError, one_line, suggest
from stacks.plan import PlannedImage
from stacks.spec import CONTEXT

_MOST_SHOWN = 5


@dataclass(frozen=True)
class Asked:
    """What a caller says of an image; empty is anything. ``args`` are some of its build arguments."""

    folder: str
    name: str
    args: Mapping[str, str]
    suffix: str


def run(options: argparse.Namespace) -> int:
    """Set the outputs ``stack``, ``image`` and ``runner``.

    Raises:
        SlipwayError: no image or more than one is meant, or an argument is not KEY=VALUE.
    """
    asked = Asked(options.folder, options.image_name, arguments(options.build_args), options.tag_suffix)
    stack, image = find(asked)
    print(f"{stack}: {image}")
    for name, value in {"stack": stack, "image": image, "runner": json.dumps(runner(plan.resolve(stack)[0]))}.items():
        actions.output(name, value)
    return 0


def arguments(text: str) -> dict[str, str]:
    """Read build arguments, ``KEY=VALUE``, one a line, as docker/build-push-action has them.

    Raises:
        SlipwayError: a line is not of that form.
    """
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise SlipwayError(f"build-args: '{one_line(line)}': expected KEY=VALUE, one a line")
        found[key] = value
    return found


def find(asked: Asked) -> tuple[str, str]:
    """Return the stack and the name of the one image that is meant.

    Raises:
        SlipwayError: none is, with what there is in its place, or more than one, with what tells them apart.
    """
    folder = posixpath.normpath(asked.folder).removeprefix(f"{CONTEXT}/")
    of_folder = [(stack, image) for stack, image in _all() if posixpath.dirname(image.spec.dockerfile) == folder]
    if not of_folder:
        folders = sorted({posixpath.dirname(image.spec.dockerfile) for _, image in _all()})
        raise SlipwayError(
            f"folder '{one_line(asked.folder)}': no image is built of it{suggest(folder, folders)}; "
            f"there are: {', '.join(folders)}"
        )
    found = [(stack, image) for stack, image in of_folder if _is_meant(image, asked)]
    if len(found) == 1:
        return found[0][0], found[0][1].spec.name
    shown = [f"{stack} {image.spec.name} ({image.spec.suffix.render()})" for stack, image in found or of_folder]
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    said = "several images are meant" if found else "no image is meant; of this folder there are"
    raise SlipwayError(
        f"{_said(asked)}: {said}: {', '.join(shown[:_MOST_SHOWN])}{more}; "
        "give image-name, tag-suffix or more build-args as `slipway show STACK` has them"
    )


@cache
def _all() -> tuple[tuple[str, PlannedImage], ...]:
    return tuple((stack, image) for stack in stack_names() for image in plan.make(stack).images)


def _is_meant(image: PlannedImage, asked: Asked) -> bool:
    return (
        (image.spec.name == asked.name if asked.name else not image.spec.product)
        and asked.suffix in {"", image.spec.suffix.render()}
        and asked.args.items() <= image.args.items()
    )


def _said(asked: Asked) -> str:
    args = ", ".join(f"{key}={value}" for key, value in asked.args.items())
    parts = {"folder": asked.folder, "image-name": asked.name, "build-args": args, "tag-suffix": asked.suffix}
    return ", ".join(f"{key} '{one_line(value)}'" for key, value in parts.items() if value)
