"""Squashfs files of images, as ``enroot import`` creates them, without root and without unpacking to a folder.

They follow enroot's src/docker.sh and src/common.sh (version 4). Every file belongs to root, the user in a container,
and is readable by it. Extended attributes and the content of /dev are left out. Environment, volumes, working
directory, entry point and command are in files below /etc.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import posixpath
import re
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from cli.export.filesystem import Filesystem
from cli.export.output import WriteFailed
from cli.export.progress import Progress
from containers import budget
from containers.child_environment import LOCAL_SECONDS, child_environment
from containers.errors import SlipwayError, one_line
from containers.image.registry_image import Image

_PROGRAM: Final = "mksquashfs"
_OPTIONS: Final = (
    "-tar",
    *("-comp", "zstd", "-Xcompression-level", "3"),  # level 15, the default, takes 30 times as long for a seventh less
    *("-all-root", "-root-mode", "0755", "-no-xattrs", "-exit-on-error", "-no-progress", "-quiet"),
)
_BLOCK: Final = 1 << 20
_FOLDER_RIGHTS: Final = 0o700
_FILE_RIGHTS: Final = 0o400
"""The owner's minimum permissions."""

_RC: Final = """\
mkdir -p {folder} 2> /dev/null
cd {folder} && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    {given}
else
    {default}
fi
"""
_VOLUME: Final = re.compile(r"(/[\w.+@:,=-]+)+", re.ASCII)
_LATEST: Final = (1 << 32) - 1
"""The latest time of a file in a squashfs, in seconds since 1970."""
_HIGHEST: Final = (1 << 20) - 1
"""The highest number of a device."""
_RC_LOCAL: Final = """\
# This file is sourced by /etc/rc when the container starts.
# It can be used to manipulate the entrypoint or the command of the container.
"""


def check() -> None:
    """Check that mksquashfs is available. Raises SlipwayError: it is not on PATH, or too old."""
    try:
        completed = subprocess.run(
            [_PROGRAM, "-help"],
            capture_output=True,
            text=True,
            check=False,
            env=child_environment(_PROGRAM),
            timeout=LOCAL_SECONDS,
        )
    except OSError:
        raise SlipwayError(f"{_PROGRAM} is not on PATH; install squashfs-tools 4.5 or newer") from None
    if "-tar" not in completed.stdout + completed.stderr:
        raise SlipwayError(f"{_PROGRAM} cannot read an archive; install squashfs-tools 4.5 or newer")


def write(image: Image, output: Path) -> None:
    """Write an image as a squashfs, with its layers in a temporary folder in the same place.

    Raises:
        SlipwayError: a download or mksquashfs fails.
        WriteFailed: the disk is full, or the output cannot be written.
    """
    files = Filesystem(image, output.with_name("layers"))
    with tempfile.TemporaryFile() as output_file:
        words = [_PROGRAM, "-", str(output), *_OPTIONS]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=output_file, stderr=output_file, env=child_environment(_PROGRAM)
        ) as running:
            budget.release(running.pid)
            pipe = cast("IO[bytes]", running.stdin)
            try:
                with contextlib.suppress(BrokenPipeError):  # a program that ended reports why
                    fill(pipe, files, image)
            except BaseException:
                running.kill()
                raise
            finally:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if running.returncode:
            output_file.seek(0)
            raise _failure(output_file.read().decode(errors="replace"))


def _failure(text: str) -> Exception:
    if os.strerror(errno.ENOSPC) in text:
        return WriteFailed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return SlipwayError(f"{_PROGRAM}: {one_line(' '.join(text.split()) or 'it failed without a message', 240)}")


def fill(stream: IO[bytes], files: Filesystem, image: Image) -> None:
    """Write the archive that becomes the squashfs."""
    generated = {name: content.encode() for name, content in configuration(image.config).items()}
    folders = {*ancestors(generated), *ancestors([f"{_folder(image.config).strip('/')}/file"])}
    progress = Progress(f"squashing {image.reference}", files.size)
    # Not pax: mksquashfs 4.5 removes the first slash of a link target in a pax record.
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, bufsize=_BLOCK) as archive:
        for path, header in files.folders():
            if _outside_dev(path):
                _add(archive, path, tarfile.DIRTYPE, header)
                folders.discard(path)
        for path in sorted(folders):
            _add(archive, path, tarfile.DIRTYPE, None)
        for path, header in files.special_files():
            if _outside_dev(path) and path not in generated:
                _add(archive, path, header.type, header)
        before = 0
        for file in files.files(lambda path: _outside_dev(path) and path not in generated):
            path, *links = file.paths
            _add(archive, path, tarfile.REGTYPE, file.header, progress.through(file.content, before))
            before += file.header.size
            for link in links:
                _add(archive, link, tarfile.LNKTYPE, file.header, target=path)
        for path, content in generated.items():
            member = tarfile.TarInfo(path)
            member.mode, member.size = 0o644, len(content)
            archive.addfile(member, io.BytesIO(content))
    progress.close()


def _outside_dev(path: str) -> bool:
    return not path.startswith("dev/")


def _add(
    archive: tarfile.TarFile,
    path: str,
    kind: bytes,
    header: tarfile.TarInfo | None,
    content: IO[bytes] | None = None,
    target: str | None = None,
) -> None:
    """Add one path with the parts of the header that a squashfs keeps."""
    member = tarfile.TarInfo(path)
    member.type = kind
    member.mode = (header.mode if header else 0o755) | (_FOLDER_RIGHTS if kind == tarfile.DIRTYPE else _FILE_RIGHTS)
    if header:
        # Out of a pax record it is any number, or none.
        member.mtime = int(header.mtime) if 0 <= header.mtime <= _LATEST else 0
        member.linkname = header.linkname if target is None else target
        member.devmajor, member.devminor = (min(each, _HIGHEST) for each in (header.devmajor, header.devminor))
        member.size = header.size if content else 0
    archive.addfile(member, content)


def ancestors(paths: Iterable[str]) -> Iterator[str]:
    """Yield the parent folders of each path, relative to the root."""
    for path in paths:
        yield from map(str, reversed(PurePosixPath(path).parents[:-1]))


def configuration(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files below /etc in which enroot stores an image's configuration, by path."""
    folder, entrypoint, command = _folder(config), config.get("Entrypoint") or [], config.get("Cmd") or []
    if not entrypoint and not command:
        command = ["/bin/sh"]
    labels = [f"# {one_line(f'{key} {value}', 1000)}\n" for key, value in (config.get("Labels") or {}).items()]
    volumes = [
        f"${{ENROOT_ROOTFS}}{path} {path} none x-create=dir,bind,rw,nosuid,nodev\n"
        for path in map(_volume, config.get("Volumes") or {})
    ]
    script = _RC.format(
        folder=shlex.quote(folder),
        given=" ".join(["exec", *map(shlex.quote, entrypoint), '"$@"']),
        default=shlex.join(["exec", *entrypoint, *command]),
    )
    return {
        "etc/environment": "".join(f"{variable}\n" for variable in config.get("Env") or []),
        "etc/fstab": "".join(volumes),
        "etc/rc": "".join([*labels, *(["\n"] if labels else []), script]),
        "etc/rc.local": _RC_LOCAL,
    }


def _volume(name: str) -> str:
    """Return the path of a volume for a line of fstab(5).

    What leads out of the container's root, or ends the line, would have enroot mount a folder of the host.

    Raises SlipwayError: it is no such path.
    """
    path = "/" + posixpath.normpath(f"/{name}").lstrip("/")  # two slashes at the beginning stay (POSIX)
    if not _VOLUME.fullmatch(path):
        raise SlipwayError(f"volume '{one_line(name)}' of the image: expected a path of letters, digits and ._+@:,=/-")
    return path


def _folder(config: Mapping[str, Any]) -> str:
    return config.get("WorkingDir") or "/"
