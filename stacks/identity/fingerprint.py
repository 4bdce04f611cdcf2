"""What is built, as one hash: equal fingerprints mean an equal spec, equal files and equal parents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from stacks.spec import ImageSpec

_IN_LABELS = {"suffix", "description", "licenses"}
"""Fields that reach the image only as labels. They count through the labels."""


def fingerprints(
    ordered: Sequence[ImageSpec],
    files: Mapping[str, Mapping[str, str]],
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Return, for each image, the SHA-256 of its spec, its context and its parents' fingerprints, in hexadecimal.

    ``ordered`` has parents before children. ``files`` maps a Dockerfile to its context's files. ``labels`` are those of
    another tree, which its own code made; by default, this code makes them. Mirrors, registries, machines and a tag's
    tail do not count: images that differ in nothing else are the same image.
    """
    prints: dict[str, str] = {}
    for spec in ordered:
        identity = {
            "spec": spec.model_dump(mode="json", exclude_defaults=True, exclude=_IN_LABELS | {"tuning"}),
            "labels": spec.labels if labels is None else dict(labels[spec.name]),
            "files": dict(files[spec.dockerfile]),
            "parents": {name: prints[name] for name in spec.siblings},
        }
        prints[spec.name] = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return prints
