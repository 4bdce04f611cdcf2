"""The contexts that builds are given: a folder with what one image is made of, and nothing else.

``docker.Image`` compares the whole context that it is given. A folder's name is the hash of its content, so an edit
that no build reads changes no input. The files are copies: a hard link would change with the edit, and would keep the
modes that this machine's umask gave it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from containers.dockerfile import context
from containers.dockerfile.failed_step import ORIGINS
from containers.errors import SlipwayError
from containers.interruption import remove_folder
from stacks.identity.content import Content
from stacks.identity.file_texts import CONTEXTS
from stacks.identity.prologue import Prologue
from stacks.spec import context_path

DOCKERFILE: Final = "Dockerfile"
"""The Dockerfile's name in a folder."""
_OWN: Final = {DOCKERFILE, f"{DOCKERFILE}{context.IGNORE}"}
_IGNORED: Final = "".join(f"/{name}\n" for name in sorted(_OWN))
_KEPT_SECONDS: Final = 7 * 24 * 3600
"""A folder that no run has used for so long is removed."""


def write(contents: Iterable[Content], root: Path) -> None:
    """Write the folder of each image and its checks that has none yet; remove folders that no run has used for a week.

    Beside it a file names the Dockerfile, for errors of the build (:mod:`containers.dockerfile.failed_step`).
    ``root`` is the checkout. Two runs at once do not disturb each other: a folder appears whole, and never changes.

    Raises SlipwayError: a file cannot be read or written, or changed since the images were planned; or a folder was
    edited, so that a build would get something else than its tag says.
    """
    folders = {built.folder: built for content in contents for built in (content, content.checks) if built}
    try:
        origins = (root / CONTEXTS).with_name(ORIGINS)
        for each in (root / CONTEXTS, origins):
            each.mkdir(parents=True, exist_ok=True)
        for name, content in folders.items():
            folder = root / name
            if folder.is_dir():
                _check(content, folder)
                os.utime(folder)
            else:
                _write(content, folder, context_path(content.spec.context, root))
            dockerfile = context_path(content.spec.context, root) / content.spec.dockerfile
            (origins / folder.name).write_text(str(dockerfile), encoding="utf-8")
        _remove_old(root / CONTEXTS)
    except OSError as error:
        raise SlipwayError(
            f"{root / CONTEXTS}: the contexts of the builds cannot be written: {error}; make the folder writable"
        ) from None


def _write(content: Content, folder: Path, source: Path) -> None:
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        temporary.chmod(0o755)
        for path, digest in content.files.items():
            if path in _OWN:
                raise SlipwayError(f"{source / path}: a build cannot read a file of this name; move it into a folder")
            _copy(source / path, temporary / path, digest, temporary, content.prologues.get(path))
        (temporary / DOCKERFILE).write_bytes(content.dockerfile.encode(errors="surrogateescape"))
        (temporary / f"{DOCKERFILE}{context.IGNORE}").write_text(_IGNORED)
        for name in _OWN:
            (temporary / name).chmod(0o644)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # another run was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy(source: Path, target: Path, digest: str, root: Path, prologue: Prologue | None) -> None:
    """Copy a file or a link with the mode that git keeps of it, after the lines of its prologue, if it has one."""
    for parent in reversed(target.relative_to(root).parents[:-1]):
        if not (root / parent).is_dir():
            (root / parent).mkdir()
            (root / parent).chmod(0o755)
    if source.is_symlink():
        link = os.readlink(source)  # noqa: PTH115 - as it is written
        copied = context.digest(os.fsencode(link), link=True)
        target.symlink_to(link)
    else:
        executable = bool(source.stat().st_mode & stat.S_IXUSR)
        lines, identity = (part.encode() for part in prologue or ("", ""))
        own = source.read_bytes()
        copied = context.digest(identity + own, executable=executable)
        with target.open("xb") as file:  # on a file system that ignores case, another file may have this name
            file.write(lines + own)
        target.chmod(0o755 if executable else 0o644)
    if copied != digest:
        raise SlipwayError(f"{source}: it changed while it was read; run the command again")


def _check(content: Content, folder: Path) -> None:
    own = {DOCKERFILE: content.dockerfile, f"{DOCKERFILE}{context.IGNORE}": _IGNORED}
    texts = {name: context.digest(text.encode(errors="surrogateescape")) for name, text in own.items()}
    files = {**content.files, **texts}
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    }
    for path in sorted(files.keys() | there.keys()):
        if path not in there or _digest(there[path], content.prologues.get(path)) != files.get(path):
            raise SlipwayError(
                f"{folder / path}: edited by hand; builds get this copy, and its name is a hash of what was there: "
                f"remove {folder}, and edit the file in {content.spec.context}"
            )


def _digest(copy: Path, prologue: Prologue | None) -> str:
    """Return the digest of what a copy was made of; empty if it has another mode, or another prologue."""
    if copy.is_symlink():
        return context.digest(os.fsencode(os.readlink(copy)), link=True)  # noqa: PTH115 - as it is written
    mode, content = stat.S_IMODE(copy.stat().st_mode), copy.read_bytes()
    lines, identity = (part.encode() for part in prologue or ("", ""))
    if mode not in {0o644, 0o755} or not content.startswith(lines):
        return ""
    return context.digest(identity + content[len(lines) :], executable=mode == 0o755)


def _remove_old(folder: Path) -> None:
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # another run removes or renames too
            if time.time() - entry.stat().st_mtime > _KEPT_SECONDS:
                remove_folder(entry)
                (folder.with_name(ORIGINS) / entry.name).unlink(missing_ok=True)
