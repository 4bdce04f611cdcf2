"""What a commit's tree builds, resolved by that tree's own code in a process of its own.

So a new default or a new argument in Python counts like one in YAML, and an edited comment does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from oci.child_environment import LOCAL_SECONDS, child_environment
from stacks.config.stack_file import stack_names
from stacks.errors import SlipwayError, one_line
from stacks.identity import git
from stacks.identity.archive import ATTRIBUTES, ArchivedContext, archives
from stacks.identity.cache import Cache
from stacks.identity.content import Content, Contents
from stacks.spec import CONTEXT, ImageSpec

STACKS: Final = "stacks"
FOLDERS: Final = (STACKS, CONTEXT)
"""The folders that decide what is built."""

_SCRIPT = Path(__file__).with_name("describe_tree.py")
_SPECS = TypeAdapter(list[dict[str, Any]])
_LONGEST = 240
"""Characters of a reason; it may hold several mistakes."""


Images = Mapping[str, Content]
"""A stack's images by name, parents before children."""


@dataclass(frozen=True)
class Tree:
    """A tree's stacks by name; ``unresolved`` says why its own code cannot resolve each other stack, in one line."""

    stacks: Mapping[str, Images] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)


def objects(commit: str, root: Path) -> dict[str, str]:
    """Return git's names of the objects that decide what a commit builds, by path; of those that the commit has.

    Commits with equal objects build the same images. ``root`` is the checkout.

    Raises:
        SlipwayError: git cannot read the commit.
    """
    listing = git.read(root, "ls-tree", "-z", commit, ATTRIBUTES, *FOLDERS)
    entries = [entry.split("\t") for entry in os.fsdecode(listing).split("\0") if entry]
    return {path: information.split()[2] for information, path in entries}


def at(commit: str, root: Path, variables: Iterable[str] = (), *, checks: bool = False) -> Tree:
    """Return what a commit builds, as its own code says. ``root`` is the checkout.

    ``checks`` says whether the contents have those of the images' checks, which move no tag.

    The code sees the tree's ``stacks`` alone. Of this environment it gets the ``variables`` and what any program needs.
    Its output is kept for other commits with the same ``stacks``.

    Raises:
        SlipwayError: git cannot read the commit, or there is no room for its ``stacks``.
    """
    environment = {name: os.environ[name] for name in variables if name in os.environ}
    specs = {path: name for path, name in objects(commit, root).items() if path != CONTEXT}
    descriptions = Cache(root, "specs").get(
        [hashlib.sha256(_SCRIPT.read_bytes()).hexdigest(), specs, environment],
        lambda: _descriptions(archives(root, commit, [STACKS]).get(STACKS, b""), environment),
        # An error may be this machine's, such as a process that was killed.
        keep=lambda value: not any("error" in description for description in value.values()),
    )
    context = ArchivedContext(archives(root, commit, [CONTEXT]).get(CONTEXT, b""), CONTEXT)
    contents = Contents(context)
    stacks: dict[str, Images] = {}
    unresolved: dict[str, str] = {}
    for stack, description in descriptions.items():
        try:
            stacks[stack] = _images(description, contents, checks=checks)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            unresolved[stack] = ": ".join(["not a spec of today", *map(str, first["loc"]), first["msg"]])
        except SlipwayError as error:
            unresolved[stack] = one_line(" ".join(str(error).split()), _LONGEST)
    return Tree(stacks, unresolved)


def _descriptions(archive: bytes, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what the code in an archive of ``stacks`` prints for each of its stacks; see ``describe_tree.py``."""
    if not archive:
        return {}
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        tar = subprocess.run(
            ["tar", "-x", "-C", folder],
            input=archive,
            capture_output=True,
            check=False,
            env=child_environment("tar"),
            timeout=LOCAL_SECONDS,
        )
        if tar.returncode:
            reason = one_line(tar.stderr.decode(errors="replace").strip())
            raise SlipwayError(f"an older tree cannot be written to a temporary folder: tar: {reason}")
        names = stack_names(Path(folder))
        if not names:
            return {}
        process = subprocess.run(
            # -P: without it the script's folder would come before the tree's.
            [sys.executable, "-B", "-P", str(_SCRIPT), *names],
            cwd=folder,
            env={**child_environment("describe_tree", PYTHONPATH=folder), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=LOCAL_SECONDS,
        )
        try:
            descriptions: dict[str, dict[str, Any]] = json.loads(process.stdout)
        except ValueError:  # the process ended early, and the last line of its errors may say why
            reason = process.stderr.strip().rpartition("\n")[2] or f"it ended with {process.returncode}"
            descriptions = {name: {"error": reason} for name in names}
        for description in descriptions.values():
            if "error" in description:
                description["error"] = description["error"].replace(f"{folder}/", "")
        return descriptions


def _images(description: Mapping[str, Any], contents: Contents, *, checks: bool) -> Images:
    """Return a stack's images; today's rule, which is BuildKit's, says what each is made of."""
    if "error" in description:
        raise SlipwayError(description["error"])
    images: dict[str, Content] = {}
    for item in _SPECS.validate_python(description["specs"]):
        labels = item.pop("labels", None)  # the first trees printed none, so today's rule makes them
        content = contents.of(ImageSpec.model_validate(item), labels, checks=checks)
        images[content.spec.name] = content
    return images
