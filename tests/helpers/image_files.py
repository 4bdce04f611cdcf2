"""Images of one layer, written file by file, for what inspects binaries."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from containers.image.binaries import contents, loading
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import X86_64
from containers.image.layers.layer import Entry, LayerIndex
from tests.helpers.elf_writer import loader

SITE = "opt/venv/lib/python3.11/site-packages"
BASE: Mapping[str, bytes | str] = {"lib64/ld-linux-x86-64.so.2": loader()}
Files = dict[str, bytes | str]


def image(
    files: Mapping[str, bytes | str],
    config: Mapping[str, Any] | None = None,
    base: Mapping[str, bytes | str] = BASE,
    modes: Mapping[str, tuple[int, int]] | None = None,
) -> Contents:
    """Return an image of one layer on a base, glibc's loader; text that begins with `->` is a symbolic link.

    `modes` are the mode and owner of some of the files, and of folders.
    """
    rights = dict(modes or {})
    entries = {path: Entry("directory", mode, (uid, uid)) for path, (mode, uid) in rights.items() if path not in files}
    for path, content in {**base, **files}.items():
        if isinstance(content, str) and content.startswith("->"):
            entries[path] = Entry("symlink", 0o777, (0, 0), target=content[2:])
        else:
            body = content.encode() if isinstance(content, str) else content
            known = contents.facts(path, len(body), io.BytesIO(body))
            mode, uid = rights.get(path, (0o755, 0))
            entries[path] = Entry("file", mode, (uid, uid), len(body), facts=known)
    return contents.of([LayerIndex(entries)], config or {})


def faults(files: Mapping[str, bytes | str], config: Mapping[str, Any] | None = None) -> list[str]:
    """Return the faults of loading, one line each."""
    return [str(fault) for fault in loading.resolve(image(files, config), X86_64).faults]
