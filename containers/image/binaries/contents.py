"""What an image holds, as far as loading needs it: its file system, its ELF files, and the loader's configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import IO, Any, Final, NamedTuple

from containers.errors import SlipwayError, one_line
from containers.image import known_layers
from containers.image.binaries import elf_file, loader_config
from containers.image.binaries.elf_file import Binary
from containers.image.layers.file_tree import FileTree
from containers.image.layers.layer import Entry, LayerIndex
from containers.image.layers.space import Space, space
from containers.image.owners import distributions, ownership_records, rpm_records
from containers.image.owners.distributions import Distribution
from containers.image.owners.ownership_records import Owned, Unread
from containers.image.registry_image import Image
from containers.registry.client import Repository

_LARGEST_TEXT: Final = 32 << 20
"""Bytes of the largest configuration or record that is read."""
_LARGEST_DATABASE: Final = 64 << 20
"""Bytes of the largest database of packages that is read."""


_TEXTS: Final = {ownership_records.DIVERSIONS, "etc/passwd", "etc/group", "etc/nccl.conf"}
_ENVIRONMENT: Final = "pyvenv.cfg"
"""The file of a virtual environment, at its root."""
_SCRIPT: Final = b"#!"
_LINE: Final = 256
"""Bytes of a script that the kernel looks at (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`)."""
_EXTENSION: Final = re.compile(r"\.(?:abi3|cpython-3[^/.]*)\.so$")
"""How the names of extensions of Python end, and of nothing else."""
_LIBRARY: Final = re.compile(r"\.so(?:\.\d+)*$")
_OTHER_SYSTEMS: Final = (b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How a library of Windows or macOS begins: `abi3` names no system, and a wheel may be for several."""
_OF_SHELL: Final = re.compile(rb"#![^\n]*[/ \t](?:[bd]?a|mk|k|z)?sh(?:\s|$)")
_MOST_TEXT: Final = 32 << 10
"""Bytes of a script that are looked at; MariaDB's image starts one of 27,000."""
_CUT: Final = "`"


class Script(NamedTuple):
    """A file that begins with ``#!``: what the kernel reads of it, and the ``text`` of a shell's script.

    A long text ends with a sign that no shell's text ends with.
    """

    start: bytes
    text: str = ""


class NotElf(NamedTuple):
    """A file under the name of an extension of Python, or too short under that of a library; ``size`` is in bytes."""

    size: int


@dataclass
class Contents:
    """An image's files as a container sees them.

    ``config`` is what a container is started with. ``binaries`` are its ELF files by path, ``scripts`` the files that
    begin with ``#!``, ``texts`` the configuration of the loader, of accounts and of Python's environments, ``owned``
    the records of package managers, ``unread`` the reasons for unread records, and ``distributions`` the Python
    packages. ``not_elf`` are files under the names of extensions and libraries. Paths are relative to the root.
    ``space`` is what all files of its layers take.
    """

    tree: FileTree
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    binaries: dict[str, Binary] = field(default_factory=dict)
    scripts: dict[str, Script] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    owned: dict[str, Owned] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)
    not_elf: dict[str, NotElf] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    space: Space = field(default_factory=Space)

    def folders(self, variable: str, default: str = "") -> list[str]:
        """Return what a variable such as PATH lists; ``default`` if unset. An empty text lists an empty folder."""
        return self.environment.get(variable, default).split(":")

    def below(self, folder: str) -> Contents:
        """Return what is below a folder as an image of its own, with this one's variables and volumes."""
        start = f"{folder}/"
        paths = ((path, entry) for path, entry in self.tree.paths() if path.startswith(start))
        entries = {path.removeprefix(start): entry for path, entry in paths if entry}
        volumes = (f"{str(each).strip('/')}/" for each in self.config.get("Volumes") or {})
        inner: dict[str, object] = {each.removeprefix(start): {} for each in volumes if each.startswith(start)}
        return of([LayerIndex(entries)], {"Env": self.config.get("Env"), "Volumes": inner})

    def text(self, path: str) -> bytes | None:
        """Return the content of a configuration file, after following links."""
        place = self.tree.find(path)
        return self.texts.get(place[0]) if place else None


def read(image: Image) -> Contents:
    """Read an image's layers, two at a time, each once: what it has of them is kept for this user, and no layer.

    Raises:
        SlipwayError: a layer cannot be read, or has a hard link to no file.
    """
    with ThreadPoolExecutor(2) as threads:  # most time goes into decompression, for which threads do not wait
        try:
            layers = list(threads.map(partial(known_layers.read, image, facts=facts), image.layers))
        except BaseException:  # Ctrl-C too
            if isinstance(image.repository, Repository):
                image.repository.end()
            raise
    known_layers.keep(layers)
    contents = of([layer.content for layer in layers], image.config)
    if contents.tree.broken:
        target = one_line(contents.tree.broken[0].target)
        why = f"a hard link leads to /{target}, which is no file before it, and no engine unpacks that"
        raise SlipwayError(f"{image.reference}: {why}; write the file before its links")
    return contents


def of(indexes: list[LayerIndex], config: Mapping[str, Any]) -> Contents:
    """Return the contents of stacked layers, whose entries have :func:`facts`; ``config`` is the image's."""
    variables = dict(str(pair).partition("=")[::2] for pair in config.get("Env") or [])
    tree = FileTree(indexes)
    labels = {str(name): str(value) for name, value in (config.get("Labels") or {}).items()}
    folder = str(config.get("WorkingDir") or "/")
    contents = Contents(tree, config, variables, labels, folder, space=space(indexes, tree))
    for path, entry in contents.tree.paths():
        if entry is None or entry.facts is None:
            continue
        contents.entries[path] = entry
        if isinstance(entry.facts, Binary):
            contents.binaries[path] = entry.facts
        elif isinstance(entry.facts, Script):
            contents.scripts[path] = entry.facts
        elif isinstance(entry.facts, Distribution):
            contents.distributions[path] = entry.facts
        elif isinstance(entry.facts, NotElf):
            contents.not_elf[path] = entry.facts
        elif isinstance(entry.facts, Owned):
            contents.owned[path] = entry.facts
        elif isinstance(entry.facts, Unread):
            contents.unread[path] = entry.facts.reason
        elif isinstance(entry.facts, list):  # a database
            contents.owned.update((f"{path}/{number}", owned) for number, owned in enumerate(entry.facts))
        else:
            contents.texts[path] = entry.facts
    return contents


Facts = Binary | Script | NotElf | Distribution | Owned | list[Owned] | Unread | bytes | None


def facts(path: str, size: int, file: IO[bytes]) -> Facts:
    """Return what is worth to know of a file: of an ELF file what a loader reads, of configuration all."""
    start = file.read(len(elf_file.MAGIC))
    if start == elf_file.MAGIC:
        return elf_file.read(file, size, start)
    if size < len(elf_file.MAGIC) and _LIBRARY.search(path):
        return NotElf(size)
    if path.endswith(".so") and _EXTENSION.search(path):
        return None if path.endswith(".abi3.so") and start.startswith(_OTHER_SYSTEMS) else NotElf(size)
    if rpm_records.is_database(path):
        return _whole(start, file, size, _LARGEST_DATABASE, partial(rpm_records.of_database, path))
    if distributions.is_metadata(path):
        return distributions.distribution(path, start + file.read(distributions.LARGEST))
    if parse := ownership_records.parser(path):
        return _whole(start, file, size, _LARGEST_TEXT, partial(parse, path))
    if path == ownership_records.STATUS:
        return _whole(start, file, size, _LARGEST_TEXT, bytes)
    is_text = loader_config.is_configuration(path) or path in _TEXTS or path.endswith(_ENVIRONMENT)
    if is_text and size <= _LARGEST_TEXT:
        return start + file.read()
    if start.startswith(_SCRIPT):
        start += file.read(_LINE - len(start))
        return _script(start, _text(start + file.read(_MOST_TEXT)) if _OF_SHELL.match(start) else "")
    return None


def _whole(start: bytes, file: IO[bytes], size: int, most: int, parse: Callable[[bytes], Facts]) -> Facts:
    """Return what a record of at most ``most`` bytes says, whose ``start`` has been read."""
    return parse(start + file.read()) if size <= most else Unread(f"{size} bytes, at most {most} are read")


def _text(content: bytes) -> str:
    """Return the text of a shell's script."""
    text = content[:_MOST_TEXT].decode(errors="replace")
    # The sign stands on a line of its own: a comment would hide it, and half a word be taken for a whole one.
    return text if len(content) <= _MOST_TEXT else text.rpartition("\n")[0] + f"\n{_CUT}"


@lru_cache(1 << 12)
def _script(start: bytes, text: str) -> Script:
    """Return a script as a shared object: an environment has hundreds with the same beginning."""
    return Script(start, text)
