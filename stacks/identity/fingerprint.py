"""What is built, as one hash: equal fingerprints mean that the engine would take every step from its cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping

from stacks.identity.content import Content
from stacks.spec import Elsewhere, Outside, Parent, Sibling


def fingerprints(contents: Iterable[Content]) -> dict[str, str]:
    """Return, for each image, the SHA-256 of what it is made of and of its parents' fingerprints, in hexadecimal.

    ``contents`` has parents before children. Mirrors, registries, machines, tuning arguments and a tag's tail do not
    count: images that differ in nothing else are the same image.
    """
    contents = [*contents]
    prints: dict[str, str] = {}
    others = _others(contents)
    for content in contents:
        identity = {
            "dockerfile": content.dockerfile,
            "files": dict(content.files),
            "args": content.args | content.label_args,
            "parents": {name: _parent(parent, prints, others) for name, parent in content.parents.items()},
            "platform": content.spec.platform,
        }
        prints[content.spec.name] = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return prints


def _others(contents: Iterable[Content]) -> dict[str, dict[str, str]]:
    """Return the fingerprints of the images of other stacks, by stack: once, however many images stand on them."""
    others: dict[str, dict[str, Content]] = {}
    for content in contents:
        for argument, parent in content.parents.items():
            if isinstance(parent, Elsewhere):
                others.setdefault(parent.stack, {}).update(content.others[argument])
    return {stack: fingerprints(of.values()) for stack, of in others.items()}


def _parent(
    parent: Parent, prints: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> str | list[str | None]:
    if isinstance(parent, Outside):
        return [parent.reference, parent.digest]
    if isinstance(parent, Sibling):
        return prints[parent.image]
    return others[parent.stack][parent.image]


def published_fingerprints(contents: Collection[Content]) -> dict[str, str]:
    """Return the fingerprint of each image that is run, by its published name.

    That of an index is made of its platforms' fingerprints: one tag names them all, so none can change without it.
    """
    prints = fingerprints(contents)
    parts: dict[str, dict[str, str]] = {}
    for spec in (content.spec for content in contents):
        if spec.is_part:
            parts.setdefault(spec.published_name, {})[spec.platform] = prints[spec.name]
    return {name: index_fingerprint(of) for name, of in parts.items()} | {
        content.spec.name: prints[content.spec.name]
        for content in contents
        if not (content.spec.product or content.spec.is_part)
    }


def index_fingerprint(parts: Mapping[str, str]) -> str:
    """Return the fingerprint of an index, from those of its images by platform."""
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()
