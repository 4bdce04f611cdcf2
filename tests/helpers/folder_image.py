"""Images made of folders of this machine, for what is inspected without an engine or an archive."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from containers.image.binaries import contents, loading
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import X86_64, ElfMachine
from containers.image.binaries.loading import Fault
from containers.image.layers.layer import Entry, LayerIndex
from containers.image.owners import ownership


def index(folder: Path, place: str = "") -> LayerIndex:
    """Return the layer that has a folder's files at a place."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = (Path(place) / path.relative_to(folder)).as_posix()
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            entries[name] = Entry("symlink", mode, owner, target=str(path.readlink()))
        elif stat.S_ISDIR(status.st_mode):
            entries[name] = Entry("directory", mode, owner)
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                facts = contents.facts(name, status.st_size, file)
            entries[name] = Entry("file", mode, owner, status.st_size, facts=facts)
    return LayerIndex(entries)


def image(layers: Iterable[LayerIndex], environment: Mapping[str, str] | None = None) -> Contents:
    """Return the image of some layers."""
    return contents.of(list(layers), {"Env": [f"{name}={value}" for name, value in (environment or {}).items()]})


def faults(read: Contents, machine: ElfMachine = X86_64) -> Sequence[Fault]:
    """Return the faults of loading and of owners."""
    owners = [contested.fault() for contested in ownership.contested(read) if contested.is_fault]
    return [*loading.resolve(read, machine).faults, *owners]
