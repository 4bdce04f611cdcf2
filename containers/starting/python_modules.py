"""What keeps Python from its program: a PYTHONHOME without modules, no module of `python -m` or of a server.

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
from typing import Final, NamedTuple

from containers.image.binaries.contents import Contents, Script
from containers.image.layers.file_tree import Trace
from containers.image.owners.package_folders import ALONE
from containers.starting import served_applications
from containers.starting.refusals import Refusal

OF_RUNTIME: Final = ("/proc/", "/sys/", "/dev/", "/run/", "/var/run/", "/mnt/", "/media/", "/tmp/", "/var/tmp/")  # noqa: S108 - nothing is written there
"""Folders that each container gets from its runtime, as Docker 26.1 and runc 1.1 give them, with `/dev/stdin`, and
those for files of a running system and for mounts (Filesystem Hierarchy Standard 3.0, 3.11, 3.12, 3.15, 3.18 and 5.15):
what an image has in them may be hidden, as by a pod's `emptyDir` that another container fills."""
_PYTHON: Final = re.compile(r"python3\.(\d+)")
_MODULE_OPTION: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
_ISOLATED: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*[EI].*")
"""Options without Python's variables, and perhaps without the folder where it starts."""
_WITH_VALUE: Final = {"-W", "-X", "--check-hash-based-pycs"}
_ENTRY_POINT: Final = re.compile(
    rb"#![^\n]*\n(?:#.*\n|import (?:re|sys)\n|if __name__ == ['\"]__main__['\"]:\n)*"
    rb" *from (?P<module>\w+(?:\.\w+)*) import "
)
"""How the script of an entry point begins (pypa/pip 26.3, pip/_vendor/distlib/scripts.py, `SCRIPT_TEMPLATE`; uv)."""
_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILE: Final = re.compile(
    r".*/python3(?:\.\d+t?)?/(?:site|dist)-packages/(?P<name>[^/]+\.pth|(?:site|user)customize\.py)"
)
_ADDS_NOTHING: Final = re.compile(r"(?:distutils-precedence|_virtualenv|.*-nspkg)\.pth")
"""Names of files `.pth` that add no folder and no importer of their own (setuptools, virtualenv)."""
_CUSTOMIZES: Final = ("sitecustomize", "usercustomize")
"""Modules that Python imports first, which may add folders."""


class _Places(NamedTuple):
    """Where a Python is: its minor release, its prefix, its name, the folder it starts in, and where it looks first."""

    minor: str
    base: str
    name: str
    folder: str
    first: tuple[str, ...]


class PythonModules:
    """The modules of an image's Pythons."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def refusal(
        self, files: Sequence[str], names: Sequence[str], arguments: Sequence[str], folder: str, *, whole: bool
    ) -> Refusal | None:
        """Return why the last of some started files, if it is a Python, does not run; None if that is not certain.

        Args:
            files: those that run, by path after following links.
            names: the same, as they were named.
            arguments: those of the last one.
            folder: where it starts.
            whole: whether these are all of its arguments.
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
        places = _Places(minor, base, names[-1], folder, (folder,))
        if module := _module(arguments):
            refusal = self._missing(module, places, has_main=True)
            if refusal:
                return refusal
        elif (script := self._script(arguments, folder)) and (imported := _ENTRY_POINT.match(script[1].start)):
            own = posixpath.dirname(f"/{script[0]}")
            refusal = self._missing(imported["module"].decode(), places._replace(first=(own,)), has_main=False)
            if refusal:
                return refusal
        application = served_applications.application(module, arguments, self._contents.environment) if whole else None
        if application is None or self._missing(application.server, places, has_main=False):
            return None
        own = folder if module else posixpath.dirname(posixpath.join(folder, arguments[0]))
        first = (posixpath.join(folder, application.folder), *((folder,) if application.configuration else ()), own)
        if application.configuration and self._is_there(posixpath.join(folder, application.configuration)):
            return None
        return self._missing(application.module, places._replace(first=first), has_main=False)

    def _script(self, arguments: Sequence[str], folder: str) -> tuple[str, Script] | None:
        """Return the script that Python runs, by its path after following links."""
        path = self._contents.tree.trace(posixpath.join(folder, "".join(arguments[:1]))).path
        script = self._contents.scripts.get(path)
        return (path, script) if script else None

    def lacks_main(self, path: str, trace: Trace) -> bool:
        """Return whether a path leads to a folder that Python cannot run."""
        is_folder = not trace.problem and (trace.entry is None or trace.entry.kind == "directory")
        return is_folder and not self._has(path, "__main__") and not self.is_mounted(path)

    def _missing(self, module: str, places: _Places, *, has_main: bool) -> Refusal | None:
        """Return why Python cannot import a module, or not run it as one that must have a main one."""
        first, *further = module.split(".")
        paths = [*places.first, *self._listed(places.folder)]
        if any(self.is_mounted(path) or f"{posixpath.normpath(path)}/".startswith(OF_RUNTIME) for path in paths):
            return None
        if any(self.is_volume(posixpath.normpath(posixpath.join(path, *module.split(".")))) for path in paths):
            return None
        if any(self._has(path, name) for path in self._listed(places.folder) for name in _CUSTOMIZES):
            return None
        folders = list(dict.fromkeys(map(posixpath.normpath, self._folders(places))))
        holders = [holder for holder in folders if self._has(holder, first)]
        if first in sys.stdlib_module_names and (not holders or further):
            return None  # which may be built in
        if not holders:
            added = [path for path in self._added if any(path.startswith(f"{each.strip('/')}/") for each in folders)]
            return None if added else Refusal(f"Python 3.{places.minor} has no module {first}", first)
        return self._missing_in(holders, module, has_main=has_main)

    def _missing_in(self, holders: Sequence[str], module: str, *, has_main: bool) -> Refusal | None:
        """Return what a module lacks. Its first part is in ``holders``."""
        first, *further = module.split(".")
        place = f"{holders[0]}/{first}"
        for part in further:
            if not self._has(place, part):
                # Others may name more folders, and so may what another holder has.
                sure = len(holders) == 1 and (self._is_empty(f"{place}/__init__.py") or self._is_only_folder(place))
                return Refusal(f"{place} has no module {part}", module) if sure else None
            place = f"{place}/{part}"
        if has_main and self._is_package(place) and not self._has(place, "__main__"):
            return Refusal(f"{place} is a package without __main__", module)
        return None

    def _folders(self, places: _Places) -> Iterator[str]:
        """Yield where Python looks for modules, the first one first."""
        minor, base, name, folder, first = places
        yield from (*first, *self._listed(folder))
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

    def _listed(self, folder: str) -> list[str]:
        """Return the folders of PYTHONPATH; an empty one is where Python starts, and an empty variable names none."""
        is_set = self._contents.environment.get("PYTHONPATH")
        return [posixpath.join(folder, path) for path in self._contents.folders("PYTHONPATH")] if is_set else []

    def _has(self, folder: str, name: str) -> bool:
        place = f"{folder}/{name}"
        if any(self._is_there(f"{place}{end}") for end in ("", ".py", ".pyc")):
            return True
        found = self._contents.tree.find(folder)
        start = posixpath.join(found[0], f"{name}.") if found else ""
        return bool(found) and any(path.startswith(start) for path in self._extensions)

    def _is_package(self, place: str) -> bool:
        return any(self._is_there(f"{place}/__init__{end}") for end in (".py", ".pyc"))

    def _is_only_folder(self, place: str) -> bool:
        """Return whether a package is a folder with files and without a module of its name, all that Python finds."""
        found = self._contents.tree.find(place)
        is_folder = found is not None and (found[1] is None or found[1].kind == "directory")
        others = any(self._is_there(f"{place}{end}") for end in (".py", ".pyc")) or self._has(place, "__init__")
        return is_folder and not others and not self._added and not self.is_mounted(place)

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
        return self.is_volume(place) or (bool(place) and not any(path.startswith(f"{place}/") for path in self._files))

    def _is_there(self, path: str) -> bool:
        return self._contents.tree.find(path) is not None

    @cached_property
    def _paths(self) -> list[str]:
        return [path for path, _ in self._contents.tree.paths()]

    @cached_property
    def _files(self) -> list[str]:
        return [path for path, entry in self._contents.tree.paths() if entry and entry.kind != "directory"]

    @cached_property
    def _extensions(self) -> list[str]:
        """The files and links that may be modules in machine code."""
        return [path for path in self._files if path.endswith(".so")]

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
