"""What can be one process in an image: each program, and each Python environment with all that its packages load."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import symbol_hash
from containers.image.copies.families import table
from containers.image.copies.processes import Processes, Root

_SITE: Final = re.compile(
    r"(?P<prefix>.*?)(?:usr/)?(?:local/)?lib(?:64)?/python(?P<version>3[^/]*)/(?:site|dist)-packages/"
)
_TAGGED: Final = re.compile(r"\.(?:cpython-(?P<version>3\d+)|abi3)[\w-]*\.so$")
_PYTHON: Final = re.compile(r"(?:^|/)python(3(?:\.\d+)?)$")


@dataclass
class Subject:
    """What is one process: its name, the files it loads, and those of them with names for all.

    ``everywhere`` has the paths of libraries with names for everything loaded later, each with its opener. ``python``
    is the path of an environment's Python, empty for a program or if it is not known.
    """

    name: str
    roots: list[Root] = field(default_factory=list)
    everywhere: dict[str, str] = field(default_factory=dict)
    python: str = ""
    environment: bool = False


def subjects(contents: Contents, processes: Processes) -> Iterator[Subject]:
    """Yield the subjects of a loader; programs with the same libraries of families are one."""
    programs: defaultdict[frozenset[str], Subject] = defaultdict(lambda: Subject(""))
    for root in processes.roots:
        if root.program:
            one = programs[frozenset(member.path for member in root.members)]
            one.name = one.name or f"/{root.path}"
            one.roots.append(root)
    for one in programs.values():
        one.everywhere = {member.path: one.name for root in one.roots for member in root.members}
        yield one
    yield from _environments(contents, processes)


def _environments(contents: Contents, processes: Processes) -> Iterator[Subject]:
    by_path = {root.path: root for root in processes.roots}
    pythons = {match[1]: path for path in contents.binaries if (match := _PYTHON.search(path))}
    for (prefix, version), roots in sorted(_by_environment(contents, processes.roots).items()):
        one = Subject(f"/{prefix}".rstrip("/") or "/", environment=True)
        one.python = pythons.get(version, pythons.get("3", ""))
        if python := by_path.get(one.python):
            one.everywhere.update((member.path, f"/{python.path}") for member in python.members)
        one.everywhere.update((path, "LD_PRELOAD") for path in processes.preloaded)
        pending = [*roots, *([python] if python else [])]
        known = {root.path for root in pending}
        while pending:
            root = pending.pop()
            one.roots.append(root)
            if _opened(root.path):
                one.everywhere.update((member.path, f"/{root.path}") for member in root.members)
            # A library of a family is opened in the process of itself alone.
            more = [by_path[member.path] for member in root.members if member.path in by_path]
            pending += [other for other in more if other.path not in known]
            known.update(other.path for other in more)
        one.roots.sort()
        yield one


def _by_environment(contents: Contents, roots: Iterable[Root]) -> Mapping[tuple[str, str], list[Root]]:
    """Return what Python opens, by the prefix of the environment and the version of its Python."""
    environments: defaultdict[tuple[str, str], list[Root]] = defaultdict(list)
    of_debian: defaultdict[str, list[Root]] = defaultdict(list)
    for root in roots:
        site = _SITE.match(root.path)
        if site and not root.program and _is_opened(contents, root.path, site["version"]):
            if site["version"] == "3":
                of_debian[site["prefix"]].append(root)
            else:
                environments[site["prefix"], site["version"]].append(root)
    for prefix, shared in of_debian.items():
        versions = [key for key in environments if key[0] == prefix] or [(prefix, "3")]
        for key in versions if len(versions) == 1 else ():
            environments[key] += shared
    return environments


def _is_opened(contents: Contents, path: str, version: str) -> bool:
    """Return whether Python opens a file: a module for it, or the table's name of a package's opened file."""
    if tagged := _TAGGED.search(path):
        return not tagged["version"] or version == "3" or tagged["version"] == version.replace(".", "")
    if _opened(path) is not None:
        return True
    name = posixpath.basename(path)
    binary = contents.binaries[path]
    return (
        name.endswith(".so")
        and not binary.soname.startswith("lib")
        and (symbol_hash(f"PyInit_{name.removesuffix('.so')}".encode()) in binary.defined)
    )


def _opened(path: str) -> bool | None:
    """Return whether a package opens a file with RTLD_GLOBAL; None if the table does not have the file."""
    return next((way for file, way in table().opened.items() if fnmatch.fnmatchcase(path, f"*-packages/{file}")), None)
