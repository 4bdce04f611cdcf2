"""What keeps Python itself from what it is to run: a PYTHONHOME without its modules, and no module of `python -m`.

Source: python/cpython v3.11.9, Modules/getpath.py (the prefix, `pyvenv.cfg`, PYTHONHOME), Lib/runpy.py
(`_get_module_details`) and Lib/site.py (`.pth`, `getsitepackages`); Debian's python3.11 adds `dist-packages`.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.owners.package_folders import ALONE
from containers.starting.refusals import Refusal

_PYTHON: Final = re.compile(r"python3\.(\d+)")
_MODULE_OPTION: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
_ISOLATED: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*[EI].*")
"""Options without Python's variables, and perhaps without the folder where it starts."""
_WITH_VALUE: Final = {"-W", "-X", "--check-hash-based-pycs"}
_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILE: Final = re.compile(
    r".*/python3(?:\.\d+t?)?/(?:site|dist)-packages/(?P<name>[^/]+\.pth|(?:site|user)customize\.py)"
)
_ADDS_NOTHING: Final = re.compile(r"(?:distutils-precedence|_virtualenv|.*-nspkg)\.pth")
"""Names of files `.pth` that add no folder and no importer of their own (setuptools, virtualenv)."""


class PythonModules:
    """The modules of an image's Pythons."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def refusal(
        self, files: Sequence[str], names: Sequence[str], arguments: Sequence[str], folder: str
    ) -> Refusal | None:
        """Return why the last of some started files, if it is a Python, does not run; None if that is not certain.

        Args:
            files: those that run, by path after following links.
            names: the same, as they were named.
            arguments: those of the last one.
            folder: where it starts.
        """
        match = _PYTHON.fullmatch(posixpath.basename(files[-1])) if files else None
        if match is None:
            return None
        minor, home = match[1], self._contents.environment.get("PYTHONHOME")
        if any(map(_ISOLATED.fullmatch, takewhile(lambda word: word.startswith("-"), arguments))):
            return None
        if home:
            prefix = posixpath.join("/", home.partition(":")[0])
            found = any(self._is_there(f"{prefix}/{lib}/python3.{minor}/encodings") for lib in ("lib", "lib64"))
            if found or self._is_there(f"{prefix}/lib/python3{minor}.zip"):
                return None
            return Refusal(f"PYTHONHOME={home} has no encodings of Python 3.{minor}", home)
        base = posixpath.dirname(posixpath.dirname(files[-1]))
        module = _module(arguments)
        return self._missing(module, minor, base, names[-1], folder) if module else None

    def _missing(self, module: str, minor: str, base: str, name: str, folder: str) -> Refusal | None:
        first, *further = module.split(".")
        paths = (posixpath.join(folder, path) for path in self._contents.folders("PYTHONPATH"))
        if any(map(self.is_mounted, paths)):
            return None
        folders = list(dict.fromkeys(map(posixpath.normpath, self._folders(minor, base, name, folder))))
        holders = [holder for holder in folders if self._has(holder, first)]
        if first in sys.stdlib_module_names and (not holders or further):
            return None  # which may be built in
        if not holders:
            added = [path for path in self._added if any(path.startswith(f"{each.strip('/')}/") for each in folders)]
            return None if added else Refusal(f"Python 3.{minor} has no module {first}", first)
        place = f"{holders[0]}/{first}"
        for part in further:
            if not self._has(place, part):
                sure = len(holders) == 1 and self._is_empty(f"{place}/__init__.py")  # others may name more folders
                return Refusal(f"{place} has no module {part}", module) if sure else None
            place = f"{place}/{part}"
        if self._is_package(place) and not self._has(place, "__main__"):
            return Refusal(f"{place} is a package without __main__", module)
        return None

    def _folders(self, minor: str, base: str, name: str, folder: str) -> Iterator[str]:
        """Yield where Python looks for modules, the first one first."""
        yield folder
        for path in self._contents.folders("PYTHONPATH"):
            yield posixpath.join(folder, path)
        prefix = posixpath.dirname(posixpath.dirname(name))
        settings = self._contents.text(f"{prefix.strip('/')}/pyvenv.cfg")
        for lib in ("lib", "lib64"):
            yield f"{prefix}/{lib}/python3.{minor}/site-packages"
        alone = settings is not None and ALONE.search(settings) is not None
        for own in (f"/{base}", "/usr/local", "/usr"):
            for lib in ("lib", "lib64"):
                kinds = ("",) if alone else ("", "/site-packages", "/dist-packages")
                yield from (f"{own}/{lib}/python3.{minor}{kind}" for kind in kinds)
        if alone:
            return
        yield "/usr/lib/python3/dist-packages"
        yield from (f"/{path}" for path in self._paths if path.endswith(f"/.local/lib/python3.{minor}/site-packages"))
        if users := self._contents.environment.get("PYTHONUSERBASE"):
            yield posixpath.join(folder, users, f"lib/python3.{minor}/site-packages")

    def _has(self, folder: str, name: str) -> bool:
        place = f"{folder}/{name}"
        if any(self._is_there(f"{place}{end}") for end in ("", ".py", ".pyc")):
            return True
        start = f"{place}.".lstrip("/")
        return any(path.startswith(start) and path.endswith(".so") for path in self._contents.binaries)

    def _is_package(self, place: str) -> bool:
        return any(self._is_there(f"{place}/__init__{end}") for end in (".py", ".pyc"))

    def _is_empty(self, path: str) -> bool:
        found = self._contents.tree.find(path)
        return found is not None and found[1] is not None and not found[1].size

    def is_volume(self, path: str) -> bool:
        """Return whether a path is in a volume, whose files a container may have from elsewhere."""
        volumes = self._contents.config.get("Volumes") or {}
        return any(f"{path.strip('/')}/".startswith(f"{str(volume).strip('/')}/") for volume in volumes)

    def is_mounted(self, folder: str) -> bool:
        """Return whether a folder looks like one whose files come with a mount: a volume, or without any."""
        place = posixpath.normpath(folder).strip("/")
        return self.is_volume(place) or (bool(place) and not any(path.startswith(f"{place}/") for path in self._paths))

    def _is_there(self, path: str) -> bool:
        return self._contents.tree.find(path) is not None

    @cached_property
    def _paths(self) -> list[str]:
        return [path for path, _ in self._contents.tree.paths()]

    @cached_property
    def _added(self) -> list[str]:
        """The files that may add folders or importers."""
        matches = (match for path in self._paths if (match := _FILE.fullmatch(path)))
        return [match[0] for match in matches if not _ADDS_NOTHING.fullmatch(match["name"])]


def _module(arguments: Sequence[str]) -> str:
    """Return the module that `python -m` runs; empty if it runs none, or one of no plain name."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if match := _MODULE_OPTION.fullmatch(option):
            name = match[1] or next(iter(rest), "")
            return name if _NAME.fullmatch(name) else ""
        if option in {"-c", "-", "--"}:
            break
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    return ""
