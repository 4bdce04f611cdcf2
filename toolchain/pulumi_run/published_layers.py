"""The pull of a stack's images by a node, from the layers that `docker manifest inspect` lists."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from containers.errors import SlipwayError
from containers.image.node_pull import RATE_NAME, NodePull, kept, size
from containers.registry.reference import Reference
from stacks.differences import platform_parts
from toolchain.machine.steps import output
from toolchain.machine.toolchain_error import ToolchainError

UNREADABLE: Final = (SlipwayError, ToolchainError, LookupError, ValueError)
"""What is raised of an image that is not published, removed, or listed in another form."""
_BASE: Final = "BASE_IMAGE"


@dataclass(frozen=True)
class PublishedLayers:
    """The layers of a published image, in bytes by digest, and the bytes of its configuration."""

    layers: Mapping[str, int]
    config: int


@dataclass(frozen=True)
class Forecast:
    """What a node with a published image must pull of the same image after an update builds it anew.

    ``name`` is the image's, ``kept`` has the layers that certainly stay, in bytes by digest, of so many ``layers``.
    ``most`` is the pull if the build changes all others.
    """

    name: str
    kept: Mapping[str, int]
    layers: int
    most: NodePull

    def __str__(self) -> str:
        if not self.kept:  # its parent is not built yet, for example
            return (
                f"{self.name}: only the build shows which of its layers a node with the published image keeps; "
                f"at the published sizes it pulls at most {self.most} at {RATE_NAME}"
            )
        return (
            f"{self.name}: a node that has the published image keeps {len(self.kept)} of its {self.layers} layers "
            f"({size(sum(self.kept.values()))}) for certain; of the others, as published {self.most} at {RATE_NAME}, "
            "it pulls those that the build changes"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, sizes in bytes."""
        kept = {"layers": len(self.kept), "size": sum(self.kept.values())}
        return {"layers": self.layers, "kept": kept, "most": self.most.as_json()}


Lookup = Callable[[str], PublishedLayers]
"""Returns the layers of the image that a reference names, or raises one of ``UNREADABLE``."""


def published_layers(reference: str, environment: Mapping[str, str]) -> PublishedLayers:
    """Return the layers of a published image.

    Where the reference names a list, as engines with containerd's image store push it, the first image in it counts:
    the others are attestations, of the platform `unknown`.
    """
    words = ["docker", "manifest", "inspect", "--insecure", reference]
    manifest = json.loads(output(words, env={**environment, "DOCKER_CLI_EXPERIMENTAL": "enabled"}, timeout=10))
    images = [entry for entry in manifest.get("manifests", []) if entry["platform"]["os"] != "unknown"]
    if images:
        return published_layers(str(Reference.of(reference).at(images[0]["digest"])), environment)
    layers = {layer["digest"]: layer["size"] for layer in manifest["layers"]}
    return PublishedLayers(layers, manifest.get("config", {}).get("size", 0))


def forecasts(before: Mapping[str, Any], after: Mapping[str, Any], lookup: Lookup) -> Iterator[Forecast]:
    """Yield the pull of each published image that an update would build anew, from the stack's outputs.

    The layers of its parent stay where the registry has the new parent. Nobody knows before a build what else it leaves
    as it was. So the published sizes of the other layers are the most that such a node would pull again.
    """
    left: dict[str, dict[str, int]] = {}
    for name, image in platform_parts(before.get("images", {})).items():
        if not (_contents(before, name) != _contents(after, name) != (None, None)) or "@" not in image.get("ref", ""):
            continue
        try:
            published = lookup(image["ref"])
        except UNREADABLE:
            continue
        below = _below(name, after, left, lookup)
        left[name] = stay = kept(published.layers, below)
        yield Forecast(name, stay, len(published.layers), NodePull.of(published.layers, stay, published.config))


def pulls(before: Mapping[str, Any], name: str, reference: str, lookup: Lookup) -> Iterator[str]:
    """Yield the pull of a published image by a node with the former one; nothing if that is the same."""
    former = before.get("images", {}).get(name, {}).get("ref", "")
    if "@" in former and "@" in reference and former != reference:
        try:
            old, new = lookup(former), lookup(reference)
        except UNREADABLE:
            return
        pull = NodePull.of(new.layers, old.layers, new.config)
        yield f"  a node that has the image of before pulls {pull} at {RATE_NAME}, without unpacking"


def _contents(outputs: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    return outputs.get("plan", {}).get(name), outputs.get("planFiles", {}).get(name)


def _below(
    name: str, after: Mapping[str, Any], left: Mapping[str, Mapping[str, int]], lookup: Lookup
) -> Mapping[str, int]:
    """Return the layers that the new parent of an image certainly has."""
    planned = after["plan"][name]
    reference = str(planned.get("parents", {}).get(_BASE) or planned.get("args", {}).get(_BASE, ""))
    try:
        return lookup(reference).layers
    except UNREADABLE:
        return next((layers for parent, layers in left.items() if Reference.of(reference).name == parent), {})
