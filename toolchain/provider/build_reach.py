"""What a build may ask this machine for: the registries of its images, and the secrets in its steps' mounts.

An engine asks for whatever it likes while it builds. The answer is for the names in the received Dockerfile.
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from containers.dockerfile import instructions, stages
from containers.dockerfile.instructions import Dockerfile, DockerfileError
from containers.errors import SlipwayError
from toolchain.provider import image_name
from toolchain.provider.inputs import ImageInputs, host_platform


@dataclass(frozen=True)
class BuildReach:
    """What one build may ask for.

    Attributes:
        registries: the hosts of its parents, and of the images that serve it as a cache.
        secrets: the ids of the secrets that its steps mount.
        unread: why the Dockerfile could not be read, which leaves both without it; "" where it could.
    """

    registries: frozenset[str]
    secrets: frozenset[str]
    unread: str = ""


def of(image: ImageInputs, dockerfile: Path) -> BuildReach:
    """Return what the build of an image may ask for. A Dockerfile that cannot be read names nothing."""
    build, unread = image.build, ""
    names, secrets = set(build.cache_from), set[str]()
    try:
        read = instructions.parse(dockerfile.read_bytes(), build.dockerfile)
        reached = stages.reach(read, build.target or None, build.args, build.platform.lower() or host_platform())
        names |= reached.outside
        secrets |= set(_secrets(Dockerfile(read.path, read.directives, reached.instructions)))
    except (OSError, DockerfileError) as error:
        unread = str(error)
    return BuildReach(frozenset(_hosts(names - {"scratch"})), frozenset(secrets), unread)


def _hosts(names: set[str]) -> Iterator[str]:
    for name in names:
        try:
            yield image_name.parse(name).host
        except SlipwayError:  # the address of an ADD, or an image's id
            continue


def _secrets(dockerfile: Dockerfile) -> Iterator[str]:
    """Yield the ids of secrets that the steps mount; BuildKit takes the target's last part where there is no id."""
    for instruction in dockerfile.instructions:
        for flag in instruction.flags:
            name, _, mount = flag.partition("=")
            if name != "--mount":  # which RUN alone has
                continue
            options = dict(option.partition("=")[::2] for option in next(csv.reader([mount]), []))
            if options.get("type", "").lower() == "secret":
                target = options.get("target") or options.get("dst") or options.get("destination") or ""
                yield options.get("id") or posixpath.basename(target)
