"""The images of a stack for several platforms: those of each platform, under names of their own in the stack.

What is the same for all platforms, such as a source, is one image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from containers.errors import SlipwayError
from containers.platform_name import architecture
from stacks.spec import ImageSpec, Sibling

OF_MACHINES: Final = {"x86_64": "linux/amd64", "amd64": "linux/amd64", "aarch64": "linux/arm64", "arm64": "linux/arm64"}
"""The platform of a machine, by what its kernel or Python calls its processor."""


def check_keys(values: Mapping[str, Any], where: str) -> None:
    """Check that a stack's file has one of the two keys of platforms. Raises SlipwayError: it has both."""
    if {"platform", "platforms"} <= values.keys():
        raise SlipwayError(
            f"{where}: slipway:platform is for one platform, and slipway:platforms for several: leave one out"
        )


def merged(specs: Mapping[str, Sequence[ImageSpec]]) -> list[ImageSpec]:
    """Return the images of all platforms as those of one stack; ``specs`` maps each platform to its own.

    Raises SlipwayError: an image would have another tag on each platform; one line for each image.
    """
    _check_tags(specs)
    by_name = {platform: {spec.name: spec for spec in own} for platform, own in specs.items()}
    shared = _shared(list(by_name.values()))
    return [
        *shared.values(),
        *(_of_platform(spec, shared) for own in specs.values() for spec in own if spec.name not in shared),
    ]


def _shared(platforms: Sequence[Mapping[str, ImageSpec]]) -> dict[str, ImageSpec]:
    """Return the products that are equal on all platforms, with all their parents."""
    first, *others = platforms
    equal = {
        name: spec for name, spec in first.items() if spec.product and all(other.get(name) == spec for other in others)
    }
    while lacking := [name for name, spec in equal.items() if not equal.keys() >= {*spec.siblings}]:
        for name in lacking:
            del equal[name]
    return equal


def _of_platform(spec: ImageSpec, shared: Mapping[str, ImageSpec]) -> ImageSpec:
    def name(image: str) -> str:
        return image if image in shared else f"{image}-{architecture(spec.platform)}"

    parents = {
        argument: Sibling(image=name(parent.image)) if isinstance(parent, Sibling) else parent
        for argument, parent in spec.parents.items()
    }
    return spec.model_copy(update={"name": name(spec.name), "repository": spec.name, "parents": parents})


def _check_tags(specs: Mapping[str, Sequence[ImageSpec]]) -> None:
    suffixes: dict[str, dict[str, str]] = {}
    for platform, own in specs.items():
        for spec in own:
            if not spec.product:
                suffixes.setdefault(spec.name, {}).setdefault(spec.suffix.render(), platform)
    mistakes = [
        f"slipway:platforms: one tag names {name} on all platforms, and it would end in "
        + " and in ".join(f"{suffix} on {platform}" for suffix, platform in different.items())
        + ": give the versions that differ in keys of the stack, or make a stack for each platform"
        for name, different in suffixes.items()
        if len(different) > 1
    ]
    if mistakes:
        raise SlipwayError("\n".join(mistakes))
