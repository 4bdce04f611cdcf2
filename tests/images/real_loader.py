"""What the loader in a container says of files, as the referee of `containers.image.binaries.loader`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import AARCH64, X86_64, ElfMachine
from containers.image.binaries.loader import CAPABILITIES, Loader
from containers.image.binaries.musl_loader import MuslLoader
from tests.images.engine import Image


class Referee(NamedTuple):
    """A loader: its path, the command that lists a file's libraries with it, and ours for the same files."""

    path: str
    command: str
    machine: ElfMachine
    ours: type[Loader] = Loader


_LOADER = "/lib64/ld-linux-x86-64.so.2"
GLIBC = Referee(_LOADER, f"LD_TRACE_LOADED_OBJECTS=1 {_LOADER}", X86_64)
GLIBC_ON_ARM = Referee(
    "/lib/ld-linux-aarch64.so.1",
    "qemu-aarch64-static -E LD_TRACE_LOADED_OBJECTS=1 /lib/ld-linux-aarch64.so.1",
    AARCH64,
)
MUSL = Referee("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1 --list", X86_64, MuslLoader)
_EACH = """while read -r file; do echo "## $file"; {command} "$file" 2>&1 || :; done"""
_MISSING = re.compile(r"\t(?P<glibc>\S+) => not found|Error loading shared library (?P<musl>\S+): No such file")
_VERSION = re.compile(r": (?P<library>\S+): version `(?P<name>[^']+)' not found \(required by (?P<by>.+)\)$")


@dataclass
class Listing:
    """The libraries of a file's process: paths of those there, names of those missing, missing versions, `failed` early."""

    libraries: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    versions: set[tuple[str, str, str]] = field(default_factory=set)
    failed: bool = False


def of_container(image: Image, paths: Iterable[str], *options: str, referee: Referee = GLIBC) -> dict[str, Listing]:
    """Return what the image's own loader lists for each file."""
    script = _EACH.format(command=referee.command)
    output = image.run(
        "sh", "-c", script, options=("--entrypoint=", *options), text="".join(f"/{path}\n" for path in paths)
    )
    listings: dict[str, Listing] = {}
    for line in output.splitlines():
        if line.startswith("## /"):
            listing = listings[line.removeprefix("## /")] = Listing()
        elif match := _VERSION.search(line):
            listing.versions.add((match["by"], match["library"], match["name"]))
        elif "error while loading shared libraries" in line:
            listing.failed = True
        elif match := _MISSING.match(line):
            listing.missing.add(match["glibc"] or match["musl"])
        elif match := re.match(r"\t(?:\S+ => )?(/\S+)", line):
            listing.libraries.add(match[1])
    return listings


def level(image: Image) -> str:
    """Return the level of this machine's processor, as the image's loader has it."""
    searched = re.findall(r"^  (x86-64-v\d) \(supported, searched\)", image.run(_LOADER, "--help"), re.MULTILINE)
    return max(searched, default="x86-64")


def loadable(contents: Contents, machine: ElfMachine = X86_64) -> list[str]:
    """Return the paths of the files that a machine's loader reads."""
    files = sorted(contents.binaries.items())
    return [path for path, file in files if file.loaded and file.machine == machine and not file.problem]


def of_contents(contents: Contents, image: Image, paths: Iterable[str], referee: Referee = GLIBC) -> dict[str, Listing]:
    """Return the same of an image that is read, for the processor of this machine."""
    assert level(image) in CAPABILITIES
    loader = referee.ours(contents, referee.machine, level(image))
    listings = {}
    for path in paths:
        process = loader.process(path)
        needed = contents.binaries[path].needed
        listed = process.objects[1:] if needed else []  # else it says "statically linked", preloads or not
        listings[path] = Listing(
            {loaded.place.name for loaded in listed} - {referee.path},
            {missing.needed for missing in process.missing},
            {
                (each.by.place.name, each.library.place.name, each.version.name)
                for each in process.versions()
                if each.library
            },
            any(missing.problem for missing in process.missing),
        )
    return listings


def differences(
    image: Image, contents: Contents, paths: Iterable[str], *options: str, referee: Referee = GLIBC
) -> list[str]:
    """Return a line for each file of which the two say something else; ``options`` are those of `docker run`."""
    ours = of_contents(contents, image, paths, referee)
    theirs = of_container(image, ours, *options, referee=referee)
    lines = []
    for path, listing in ours.items():
        real = theirs[path]
        real.libraries -= {referee.path, f"/usr{referee.path}", f"/{path}"}  # a library to be preloaded lists itself
        if real.failed != listing.failed:
            lines.append(f"/{path}: ends early: {real.failed}, not {listing.failed}")
        elif not real.failed and real != listing:
            lines.append(f"/{path}: {real}, not {listing}")
    return lines
