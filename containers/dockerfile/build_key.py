"""The key of a build: equal keys mean that BuildKit would take every step from its cache, whoever's Dockerfile it is.

It needs Python's standard library alone, so that a workflow can ask for it before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containers.dockerfile import instructions, stages
from containers.dockerfile.build_graph import graph
from containers.dockerfile.context import Folder
from containers.dockerfile.context_files import ContextFiles


@dataclass(frozen=True)
class BuildKey:
    """What one build reads.

    Attributes:
        graph: the SHA-256 of the steps and of the image's configuration.
        files: the SHA-256 of each file, folder and link that these read, with its mode, by its path in the context, or
            behind a link by the instruction's name for it.
        arguments: the given build arguments that they declare. Their values are in the steps.
        platform: the platform to build for.
        outside: the images and addresses that they fetch without a digest: these may move under one key.
    """

    graph: str
    files: Mapping[str, str]
    arguments: Mapping[str, str]
    platform: str
    outside: tuple[str, ...]

    @property
    def key(self) -> str:
        """The SHA-256 of it all, in hexadecimal."""
        whole = [self.graph, dict(self.files), self.platform]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the key and what it is made of, as JSON."""
        return {
            "key": self.key,
            "platform": self.platform,
            "arguments": dict(self.arguments),
            "files": dict(self.files),
            "outside": list(self.outside),
        }


def build_key(file: Path, context: Path, target: str | None, arguments: Mapping[str, str], platform: str) -> BuildKey:
    """Return the key of the build of a Dockerfile's target, None for the last stage, from a context.

    Raises SlipwayError: there is no such file or stage, the build's reads are not known beforehand, or the context
    lacks one of them.
    """
    folder, path = Folder(context, whole=True), str(file.absolute())
    dockerfile = instructions.parse(folder.read(path), str(file))
    reach = stages.reach(dockerfile, target, arguments, platform, whole=True)
    files = ContextFiles(dockerfile, folder, folder.paths(path)).followed(reach.sources)
    digests = {name: folder.digest(files[name]) for name in sorted(files)}
    last = [each.words for each in dockerfile.instructions if each.keyword == "FROM"][-1]
    return BuildKey(
        graph(reach, target or " ".join(last[2:]).lower(), arguments, platform),
        digests,
        {name: value for name, value in arguments.items() if name in reach.arguments},
        platform,
        tuple(sorted(name for name in reach.outside if name != "scratch" and "@sha256:" not in name)),
    )
