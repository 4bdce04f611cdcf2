"""What is built, as one hash: equal fingerprints mean that the engine would take every step from its cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from stacks.identity.content import Content
from stacks.spec import Outside


def fingerprints(contents: Iterable[Content]) -> dict[str, str]:
    """Return, for each image, the SHA-256 of what it is made of and of its parents' fingerprints, in hexadecimal.

    ``contents`` has parents before children. Mirrors, registries, machines, tuning arguments and a tag's tail do not
    count: images that differ in nothing else are the same image.
    """
    prints: dict[str, str] = {}
    for content in contents:
        identity = {
            "dockerfile": content.dockerfile,
            "files": dict(content.files),
            "args": content.args | content.label_args,
            "parents": {
                name: [parent.reference, parent.digest] if isinstance(parent, Outside) else prints[parent.image]
                for name, parent in content.parents.items()
            },
            "platform": content.spec.platform,
        }
        prints[content.spec.name] = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return prints
