"""What a tree builds: the working tree, by this process, or a commit's, told by its own code in another process.

Older trees are asked, not guessed: their ``stacks`` is run as it was, so that a new default or a new argument in
Python counts like one in YAML, and an edited comment does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from stacks.config.stack_file import stack_names
from stacks.errors import SlipwayError, one_line
from stacks.identity.archive import Packed
from stacks.spec import CONTEXT, ImageSpec

_STACKS = "stacks"
PARTS = (_STACKS, CONTEXT)
"""The folders that decide what is built."""

_ATTRIBUTES = ".gitattributes"
_ALL_EXPORTED = b"\n* -export-ignore -export-subst\n"

_ASKED = Path(__file__).with_name("describe_tree.py")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
_ITEMS = TypeAdapter(list[dict[str, Any]])
_LONGEST = 240
"""Characters of a reason; it may hold several mistakes."""


@dataclass(frozen=True)
class Content:
    """What decides an image's content, but for its parents: its spec, its labels, and its context's files.

    The labels are those of its own tree's rule. ``files`` is as :func:`stacks.identity.context.files` returns it.
    """

    spec: ImageSpec
    labels: Mapping[str, str]
    files: Mapping[str, str]


Contents = Mapping[str, Content]
"""A stack's images by name, parents before children."""


@dataclass(frozen=True)
class Told:
    """A tree's stacks by name, and, of those that its own code cannot resolve, why not, in one line."""

    stacks: Mapping[str, Contents] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


def contents(ordered: Sequence[ImageSpec], files: Callable[[str], Mapping[str, str]]) -> dict[str, Content]:
    """Return the content of each image of a stack; ``files`` returns those of a Dockerfile's context."""
    found = {name: files(name) for name in dict.fromkeys(spec.dockerfile for spec in ordered)}
    return {spec.name: Content(spec, spec.labels, found[spec.dockerfile]) for spec in ordered}


def at(commit: str, root: Path, stacks: Iterable[str] | None = None, variables: Iterable[str] = ()) -> Told:
    """Ask a commit's own tree what it builds: the stacks named, or all that it has.

    ``root`` is the checkout. The other process has no more of the tree than ``stacks``, of which specs are made, and of
    this environment only what a program needs, and ``variables``.

    Raises:
        SlipwayError: the commit cannot be read, or there is no room for its ``stacks``.
    """
    parts = _packed(root, commit)
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        if _STACKS in parts:
            _ran("tar", "-x", "-C", folder, given=parts[_STACKS])
        names = stack_names(folder) if stacks is None else list(stacks)
        answers = _asked(folder, names, [*_ENVIRONMENT, *variables]) if names else {}
    files = cache(Packed(parts.get(CONTEXT, b""), CONTEXT).files)
    told: dict[str, Contents] = {}
    silent: dict[str, str] = {}
    for stack, answer in answers.items():
        try:
            told[stack] = _contents(answer, files)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            silent[stack] = ": ".join(["not a spec of today", *map(str, first["loc"]), first["msg"]])
        except SlipwayError as error:
            silent[stack] = one_line(" ".join(str(error).replace(f"{folder}/", "").split()), _LONGEST)
    return Told(told, silent)


def _packed(root: Path, commit: str) -> dict[str, bytes]:
    """Return git's archives of the parts that a commit has, with all that a checkout of it has.

    A commit's own attributes may keep files out of an archive, or write into them, and builds see neither. So they are
    read from a tree of nothing but them, in which these two are taken back.
    """
    where, prefix = _ran("git", "-C", root, "rev-parse", "--absolute-git-dir", "--show-prefix").decode().splitlines()
    own = f"{commit}:{prefix}"
    listed = _ran("git", "-C", root, "ls-tree", "-r", "-z", "--name-only", commit, _ATTRIBUTES, *PARTS)
    paths = [os.fsdecode(path) for path in listed.split(b"\0")]
    with tempfile.TemporaryDirectory(prefix="slipway-") as tree:
        for path in paths:
            if path.rpartition("/")[2] == _ATTRIBUTES:
                file = Path(tree, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(_ran("git", "-C", root, "cat-file", "blob", own + path) + _ALL_EXPORTED)
        words = ("git", "-C", tree, "--git-dir", where, "--work-tree", tree, "archive", "--worktree-attributes", own)
        return {part: _ran(*words, part) for part in PARTS if any(path.startswith(f"{part}/") for path in paths)}


def _ran(*words: str | Path, given: bytes = b"") -> bytes:
    done = subprocess.run(words, input=given, capture_output=True, check=False)
    if done.returncode:
        said = one_line(done.stderr.decode(errors="replace").strip())
        raise SlipwayError(f"an older tree cannot be read: {words[0]}: {said}; see what `git fsck` says, or clone anew")
    return done.stdout


def _asked(folder: Path, stacks: Sequence[str], variables: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
    asked = subprocess.run(
        [sys.executable, "-B", "-P", str(_ASKED), *stacks],  # -P: or the script's folder would come before the tree
        cwd=folder,
        env={"PYTHONPATH": str(folder), **{name: os.environ[name] for name in variables if name in os.environ}},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answers: Mapping[str, Mapping[str, Any]] = json.loads(asked.stdout)
    except ValueError:  # it ended before its time, and its last word may say why
        why = asked.stderr.strip().rpartition("\n")[2] or f"it ended with {asked.returncode}"
        return {stack: {"error": why} for stack in stacks}
    return answers


def _contents(answer: Mapping[str, Any], files: Callable[[str], Mapping[str, str]]) -> dict[str, Content]:
    """Read a stack's answer; which files belong to an image is a builder's rule, so that it is not asked."""
    if "error" in answer:
        raise SlipwayError(answer["error"])
    items = _ITEMS.validate_python(answer["specs"])
    # Trees before this one did not tell their labels; then today's rule stands for theirs.
    labels = [item.pop("labels", None) for item in items]
    read = contents([ImageSpec.model_validate(item) for item in items], files)
    return {
        name: content if own is None else replace(content, labels=own)
        for (name, content), own in zip(read.items(), labels, strict=True)
    }
