"""The key of a build: equal keys mean that BuildKit would take every step from its cache, whoever's Dockerfile it is.

It needs Python's standard library alone, so that a workflow can ask for it before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from containers.dockerfile import instructions, stages
from containers.dockerfile.canonical_form import canonical
from containers.dockerfile.context import Folder
from containers.dockerfile.context_files import ContextFiles


@dataclass(frozen=True)
class BuildKey:
    """What one build reads.

    Attributes:
        dockerfile: the instructions of the reached stages, in their canonical form.
        files: the SHA-256 of each file, folder and link that these read, with its mode, by its path in the context, or
            behind a link by the instruction's name for it.
        arguments: the given build arguments that they read.
        platform: the platform to build for.
        outside: the images and addresses that they fetch without a digest: these may move under one key.
    """

    dockerfile: str
    files: Mapping[str, str]
    arguments: Mapping[str, str]
    platform: str
    outside: tuple[str, ...]

    @property
    def key(self) -> str:
        """The SHA-256 of it all, in hexadecimal."""
        whole = [self.dockerfile, dict(self.files), dict(self.arguments), self.platform]
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

    Raises:
        SlipwayError: there is no such file or stage, the build's reads are not known beforehand, or the context lacks
            one of them.
    """
    folder, path = Folder(context, whole=True), str(file.absolute())
    content = folder.read(path)
    dockerfile = instructions.parse(content, str(file))
    if dockerfile.escape == "\\" or (
        b"\\" not in content and content.count(b"`") == 1
    ):  # the default, or what is nowhere
        directives = tuple(line for line in dockerfile.directives if not line.startswith("escape="))
        dockerfile = replace(dockerfile, directives=directives)
    reach = stages.reach(dockerfile, target, arguments, platform)
    files = ContextFiles(dockerfile, folder, folder.paths(path)).followed(reach.sources)
    read = {name: value for name, value in arguments.items() if name in reach.arguments}
    outside = sorted(name for name in reach.outside if name != "scratch" and "@sha256:" not in name)
    digests = {name: folder.digest(files[name]) for name in sorted(files)}
    form = reach.render(read, canonical(reach, platform))
    if "TARGETSTAGE" in reach.arguments:  # the one name of a stage that a step reads (dockerfile2llb/platform.go:56)
        last = [each.words for each in dockerfile.instructions if each.keyword == "FROM"][-1]
        form += f"# {target or ' '.join(last[2:]).lower()}\n"
    return BuildKey(form, digests, read, platform, tuple(outside))
