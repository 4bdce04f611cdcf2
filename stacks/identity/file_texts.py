"""The text of a file as an image had it, known by the file's hash: a found text has that hash, from whichever place.

A state has the hashes of an image's files and not their text. The contexts that builds were given have it, as long as
these are kept, and the repository's commits.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from containers import secret_words
from containers.dockerfile import context, instructions, stages
from containers.errors import SlipwayError
from stacks.identity.git import git, read

CONTEXTS: Final = ".slipway/contexts"
"""The folder of the contexts that builds are given, relative to the checkout."""
STAGED: Final = "Dockerfile"
"""A Dockerfile's name in such a folder."""
_LARGEST: Final = 256 * 1024
"""Bytes of a file that is read for its lines."""
_MOST_COMMITS: Final = 50
"""Commits of a file that are searched, the newest first."""


def both(
    path: str, before: tuple[str, Mapping[str, Any]], after: tuple[str, Mapping[str, Any]], root: Path
) -> tuple[str, str]:
    """Return the texts of a file of an image before and after a change: two empty ones unless both are known.

    Each side is the beginning of the file's hash, and the contents of the image that had it.
    """
    try:
        texts = [text(path, digest, image, root) for digest, image in (before, after)]
    except (OSError, SlipwayError):  # what is only shown stops nothing
        return "", ""
    old, new = texts
    return ("", "") if old is None or new is None else (old, new)


def text(path: str, digest: str, image: Mapping[str, Any], root: Path) -> str | None:
    """Return the text of a file by the beginning of its hash; None where nothing has it, or it is no text.

    ``path`` is the file's in its context, and ``image`` the contents of the image that had it
    (:attr:`stacks.plan.PlannedImage.contents`): of a Dockerfile, these decide which stages count.
    """
    if secret_words.FILE.search(path):
        return None
    kept = [file for name in (path, STAGED) for file in sorted((root / CONTEXTS).glob(f"*/{glob.escape(name)}"))]
    for content in (*map(_on_disk, kept), *_committed(path, root)):
        if content and _is(content, digest):
            return _as_text(content[0])
        reached = _reached(content[0], image) if content and b"FROM" in content[0].upper() else None
        if reached and _is(reached, digest):
            return _as_text(reached[0])
    return None


def _is(file: tuple[bytes, bool], digest: str) -> bool:
    return context.digest(file[0], executable=file[1]).startswith(digest)


def _on_disk(file: Path) -> tuple[bytes, bool] | None:
    status = file.lstat()
    if file.is_symlink() or not file.is_file() or status.st_size > _LARGEST:
        return None
    return file.read_bytes(), bool(status.st_mode & 0o100)


def _committed(path: str, root: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield the versions of a file in the last commits that changed it."""
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path)
    listing = git(
        root,
        "log",
        f"-{_MOST_COMMITS}",
        "--format=",
        "--raw",
        "--no-abbrev",
        "--no-renames",
        "--",
        f":(glob)**/{escaped}",
    )
    versions = re.findall(r"^:(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) ", listing or "", re.MULTILINE)
    blobs = dict.fromkeys(
        (blob, mode) for old, new, before, after in versions for blob, mode in ((after, new), (before, old))
    )
    for blob, mode in blobs:
        if mode in {"100644", "100755"}:
            try:
                content = read(root, "cat-file", "blob", blob)
            except SlipwayError:  # a partial clone, or a damaged one
                continue
            if len(content) <= _LARGEST:
                yield content, mode == "100755"


def _reached(content: bytes, image: Mapping[str, Any]) -> tuple[bytes, bool] | None:
    """Return the Dockerfile of the stages that an image's target reaches; None for what is no Dockerfile."""
    parents = {name: f"parent:{name.lower()}" for name in image.get("parents", {})}
    given = {**image.get("args", {}), **image.get("labels", {}), **parents}
    try:
        dockerfile = instructions.parse(content, STAGED)
        reach = stages.reach(dockerfile, image.get("target"), given, image.get("platform") or "")
    except SlipwayError:
        return None
    return reach.render(given).encode(errors="surrogateescape"), False


def _as_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
