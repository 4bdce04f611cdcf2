"""What can be one process in an image: each program, and each Python environment with all that its packages load."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.copies.families import Opened, table
from containers.image.copies.processes import Processes, Root
from containers.image.owners.package_folders import Environment, PackageFolders

_TAGGED: Final = re.compile(r"\.(?:cpython-(?P<version>3\d+t?)|abi3)[\w-]*\.so$")
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


def subjects(contents: Contents, processes: Processes, folders: PackageFolders) -> Iterator[Subject]:
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
    yield from _environments(contents, processes, folders)


def _environments(contents: Contents, processes: Processes, folders: PackageFolders) -> Iterator[Subject]:
    by_path = {root.path: root for root in processes.roots}
    pythons = {match[1]: path for path in contents.binaries if (match := _PYTHON.search(path))}
    opened = _opened_by_environment(contents, processes.roots, folders)
    for environment in filter(opened.__contains__, folders.environments):
        roots = opened[environment]
        one = Subject(environment.place, environment=True)
        one.python = pythons.get(environment.version.rstrip("t"), pythons.get("3", ""))
        if python := by_path.get(one.python):
            one.everywhere.update((member.path, f"/{python.path}") for member in python.members)
        one.everywhere.update((path, "LD_PRELOAD") for path in processes.preloaded)
        pending = [*roots, *([python] if python else [])]
        known = {root.path for root in pending}
        while pending:
            root = pending.pop()
            one.roots.append(root)
            if (row := _opened(contents, folders, root.path, environment)) and row.everywhere:
                one.everywhere.update((member.path, f"/{root.path}") for member in root.members)
            # A library of a family is opened in the process of itself alone.
            more = [by_path[member.path] for member in root.members if member.path in by_path]
            pending += [other for other in more if other.path not in known]
            known.update(other.path for other in more)
        one.roots.sort()
        yield one


def _opened_by_environment(
    contents: Contents, roots: Iterable[Root], folders: PackageFolders
) -> Mapping[Environment, Sequence[Root]]:
    """Return the roots that the Python of each environment opens."""
    environments: defaultdict[Environment, list[Root]] = defaultdict(list)
    for root in roots:
        is_package = bool(folders.folder(root.path))
        for environment in () if root.program else folders.of(root.path) if is_package else folders.environments:
            if _is_opened(contents, folders, root.path, environment):
                environments[environment].append(root)
    return environments


def _is_opened(contents: Contents, folders: PackageFolders, path: str, environment: Environment) -> bool:
    """Return whether Python opens a file: a module for it, or the table's name of a file that a package opens."""
    if _opened(contents, folders, path, environment):
        return True
    if not folders.folder(path):
        return False
    if tagged := _TAGGED.search(path):
        return not tagged["version"] or tagged["version"] == environment.version.replace(".", "")
    name = posixpath.basename(path)
    return name.endswith(".so") and contents.binaries[path].is_module(name.removesuffix(".so"))


def _opened(contents: Contents, folders: PackageFolders, path: str, environment: Environment) -> Opened | None:
    """Return the row of the table for a file that a package of an environment opens; None if it has none."""
    folder = folders.folder(path)
    file = path.removeprefix(f"{folder}/") if folder else f"/{path}"
    openers = [folder] if folder else environment.folders
    rows = (row for row in table().opened if row.has(file))
    return next((row for row in rows if not row.beside or _has(contents, openers, row.beside)), None)


def _has(contents: Contents, folders: Iterable[str], file: str) -> bool:
    return any(contents.tree.find(f"{folder}/{file}") for folder in folders)
