"""What a build may ask this machine for: the registries of its images, and the secrets in its steps' mounts.

An engine asks for whatever it likes while it builds. The answer is for the names in the received Dockerfile.
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from containers.dockerfile import instructions, stages
from containers.dockerfile.context import Folder
from containers.dockerfile.context_files import ContextFiles
from containers.dockerfile.instructions import DockerfileError
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
    names, secrets, unread = set(image.build.cache_from), set[str](), ""
    try:
        reached = _reached(image, dockerfile.read_bytes())
        names |= reached.outside
        secrets |= {each for run in reached.instructions for flag in run.flags if (each := _secret(flag)) is not None}
    except (OSError, DockerfileError) as error:
        unread = str(error)
    return BuildReach(frozenset(_hosts(names - {"scratch"})), frozenset(secrets), unread)


def for_hashing_engine(image: ImageInputs, root: str, dockerfile: str, given: Collection[str]) -> bytes | None:
    """Return the Dockerfile for an engine that hashes below secrets; None if it is the context's own.

    ``root`` is the context, ``dockerfile`` a path relative to it, and ``given`` are the ids of secrets.

    Raises DockerfileError: it cannot be read.
    """
    content = Path(root, dockerfile).read_bytes()
    result = without_secrets(content, image.build.dockerfile, given)
    return None if result == content or _copies_itself(_reached(image, content), root, dockerfile) else result


def without_secrets(content: bytes, path: str, given: Collection[str]) -> bytes:
    """Return a Dockerfile without mounts of secrets not ``given``; those that do something even so stay.

    At the place of a secret that nobody gave a step finds nothing, with the mount and without. With it, BuildKit hashes
    the whole root file system below the step: the mount counts as one of the step's input 0 (moby/buildkit v0.13.2,
    client/llb/exec.go:398, solver/llbsolver/ops/exec.go:288 and :344), from ab17c1dd to 157efce4: v0.13 to v0.15.

    Raises DockerfileError: it cannot be read.
    """
    text = content.decode("utf-8", "surrogateescape")
    starts = [0, *(place + 1 for place, character in enumerate(text) if character == "\n")]
    read, changed = instructions.parse(content, path), text
    wanted = []
    for each in read.instructions:
        useless = {flag for flag in each.flags if _secret(flag) not in {None, *given} and not _is_needed(flag)}
        wanted.append(replace(each, flags=tuple(flag for flag in each.flags if flag not in useless)))
        for flag in useless:
            place = text.find(flag, starts[each.line - 1])
            if place >= 0:
                changed = f"{changed[:place]}{' ' * len(flag)}{changed[place + len(flag) :]}"
    result = changed.encode("utf-8", "surrogateescape")
    # A flag that is written in quotes, or over two lines, was not found, or something else was.
    return result if instructions.parse(result, path).instructions == tuple(wanted) else content


def _reached(image: ImageInputs, content: bytes) -> stages.Reach:
    build = image.build
    read = instructions.parse(content, build.dockerfile)
    return stages.reach(read, build.target or None, build.args, build.platform.lower() or host_platform())


def _copies_itself(reached: stages.Reach, root: str, dockerfile: str) -> bool:
    """Return whether a step copies the Dockerfile. The engine has it in the context in any case."""
    if dockerfile.startswith("../"):
        return True
    folder = Folder(Path(root))
    try:
        paths = sorted({*folder.paths(dockerfile), dockerfile})
        return dockerfile in ContextFiles(reached.dockerfile, folder, paths).of(reached.sources)
    except SlipwayError:  # a source that is not there, or not for a tag: the engine may know it
        return True


def _hosts(names: set[str]) -> Iterator[str]:
    for name in names:
        try:
            yield image_name.parse(name).host
        except SlipwayError:  # the address of an ADD, or an image's id
            continue


def _secret(flag: str) -> str | None:
    """Return the id of the secret that a flag mounts; BuildKit takes the target's last part where there is no id."""
    options = _mount(flag)
    if options.get("type", "").lower() != "secret":
        return None
    target = options.get("target") or options.get("dst") or options.get("destination") or ""
    return options.get("id") or options.get("source") or options.get("src") or posixpath.basename(target)


def _is_needed(flag: str) -> bool:
    """Return whether a mount does something without its secret.

    It fails the step, or sets a variable to nothing: ``env``, which BuildKit's frontends know since 1.10 (moby/buildkit
    v0.13.2, solver/llbsolver/ops/exec.go:562).
    """
    return not {"required", "env"}.isdisjoint(_mount(flag))


def _mount(flag: str) -> Mapping[str, str]:
    """Return the options of a flag `--mount`, and none of another flag; BuildKit reads their names in any case."""
    name, _, mount = flag.partition("=")
    words = next(csv.reader([mount]), []) if name == "--mount" else []
    return {key.lower(): value for key, _, value in (option.partition("=") for option in words)}
