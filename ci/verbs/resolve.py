"""``python -m ci resolve``: find the stack and image of a Dockerfile's folder, build arguments and tag suffix.

These are the inputs of the reusable workflow of coreweave/ml-containers. Here they select exactly one image of the
stacks.
"""

from __future__ import annotations

import argparse
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ci import actions
from ci.verbs.affected import natives, runner
from containers.errors import SlipwayError, one_line, suggest
from stacks import plan
from stacks.config.stack_file import stack_names
from stacks.plan import PlannedImage
from stacks.spec import CONTEXT

_LISTED = 5
"""Images that an error lists."""


@dataclass(frozen=True)
class Query:
    """Properties of one image; an empty one matches any. ``args`` are some of its build arguments."""

    folder: str
    name: str
    args: Mapping[str, str]
    suffix: str


def run(options: argparse.Namespace) -> int:
    """Set the outputs ``stack``, ``image``, ``runner`` and ``natives``.

    The image of a stack for several platforms is their index.

    Raises SlipwayError: no image or several match, or an argument is not KEY=VALUE.
    """
    query = Query(options.folder, options.image_name, arguments(options.build_args), options.tag_suffix)
    stack, image = find(query)
    print(f"{stack}: {image}")
    config, _ = plan.resolve(stack)
    jobs = {"runner": json.dumps(runner(config)), "natives": json.dumps(natives(config))}
    for name, value in {"stack": stack, "image": image, **jobs}.items():
        actions.output(name, value)
    return 0


def arguments(text: str) -> dict[str, str]:
    """Read build arguments, ``KEY=VALUE``, one per line, as docker/build-push-action does.

    Raises SlipwayError: a line is not of that form.
    """
    values = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise SlipwayError(f"build-args: '{one_line(line)}': expected KEY=VALUE, one per line")
        values[key] = value
    return values


def find(query: Query) -> tuple[str, str]:
    """Return the stack and the name of the one matching image.

    Raises SlipwayError: none or several match; the message lists candidates.
    """
    folder = posixpath.normpath(query.folder).removeprefix(f"{CONTEXT}/")
    of_folder = [(stack, image) for stack, image in _all() if _folder(image) == folder]
    if not of_folder:
        folders = sorted({_folder(image) for _, image in _all()})
        raise SlipwayError(
            f"folder '{one_line(query.folder)}': no image has its Dockerfile there{suggest(folder, folders)}; "
            f"expected one of: {', '.join(folders)}"
        )
    matches = [(stack, image) for stack, image in of_folder if _matches(image, query)]
    # An image of the name comes before an index of the name, in any stack.
    matches = [(stack, image) for stack, image in matches if image.spec.name == query.name] or matches
    if len(single := {(stack, _name(image, query)) for stack, image in matches}) == 1:
        return single.pop()
    names = [f"{stack} {image.spec.name} ({image.spec.suffix.render()})" for stack, image in matches or of_folder]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    problem = "several images match" if matches else "no image matches; the folder has"
    raise SlipwayError(
        f"{_describe(query)}: {problem}: {', '.join(names[:_LISTED])}{more}; "
        "set image-name, tag-suffix or more build-args, as in `slipway show STACK`"
    )


def _folder(image: PlannedImage) -> str:
    """Return the folder of an image's Dockerfile, as a caller may name it."""
    return posixpath.dirname(image.spec.path).removeprefix(f"{CONTEXT}/")


@cache
def _all() -> tuple[tuple[str, PlannedImage], ...]:
    return tuple((stack, image) for stack in stack_names() for image in plan.make(stack).images)


def _matches(image: PlannedImage, query: Query) -> bool:
    return (
        (query.name in {image.spec.name, image.spec.published_name} if query.name else not image.spec.product)
        and query.suffix in {"", image.spec.suffix.render()}
        and query.args.items() <= image.args.items()
    )


def _name(image: PlannedImage, query: Query) -> str:
    """Return an image's name in its stack, or that of its index, unless the query means the one of a platform."""
    return image.spec.published_name if image.spec.is_part and query.name != image.spec.name else image.spec.name


def _describe(query: Query) -> str:
    args = ", ".join(f"{key}={value}" for key, value in query.args.items())
    parts = {"folder": query.folder, "image-name": query.name, "build-args": args, "tag-suffix": query.suffix}
    return ", ".join(f"{key} '{one_line(value)}'" for key, value in parts.items() if value)
