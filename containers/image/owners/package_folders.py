"""The folders where each Python of an image finds packages, the first one first.

Sources: python/cpython v3.11.9, Lib/site.py (`venv`, `main`: a virtual environment's folder, that of the user, then
those of the system) and Modules/getpath.py (PYTHONPATH before all). Debian's Python has `dist-packages`, those below
/usr/local first; a Python of its own below /usr/local has `site-packages`, and sees none of Debian's. Red Hat's Python
has `site-packages`, those below /usr/local first (fedoraproject.org/wiki/Changes/Making_sudo_pip_safe).
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from containers import budget
from containers.image.binaries.contents import Contents
from containers.path_prefixes import prefixes
from containers.starting import account

_FOLDER: Final = re.compile(
    r"(?P<folder>(?P<prefix>.*?)/?lib(?:64)?/python(?P<version>3(?:\.\d+)?t?)/(?P<kind>site|dist)-packages)/.*"
)
_PYTHON: Final = re.compile(r"(?P<prefix>.+)/bin/python(?P<version>3\.\d+t?)")
_CONFIGURATION: Final = "pyvenv.cfg"
HOME: Final = re.compile(rb"^\s*home\s*=\s*(/.*?)\s*$", re.MULTILINE)
"""The folder of the Python that a virtual environment is made from, in its settings."""
ALONE: Final = re.compile(rb"^\s*include-system-site-packages\s*=(?!\s*true\s*$)", re.IGNORECASE | re.MULTILINE)
"""A setting by which an environment does not see its base's packages; without it, it does."""
_SYSTEM: Final = "usr"
_LOCAL: Final = "usr/local"
SHARED: Final = "usr/lib/python3/dist-packages"
"""Debian's packages, of all its Pythons."""


class Environment(NamedTuple):
    """A Python's ``folders`` of packages, by paths relative to the root; ``version`` is as ``3.11`` or ``3.13t``."""

    prefix: str
    version: str
    folders: tuple[str, ...]

    @property
    def place(self) -> str:
        """The prefix as an absolute path."""
        return f"/{self.prefix}".rstrip("/") or "/"


class PackageFolders:
    """The environments of an image, and the folder that each file belongs to."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._own = self._installed()
        self.environments = sorted(self._all(), key=lambda one: (len(one.folders), one))
        by_folder: defaultdict[str, list[Environment]] = defaultdict(list)
        for environment in self.environments:
            for folder in environment.folders:
                by_folder[folder].append(environment)
        self._by_folder: Mapping[str, Sequence[Environment]] = by_folder

    def of(self, path: str) -> Sequence[Environment]:
        """Return the environments that see a file, those with the fewest folders first.

        A package of the same name in an earlier folder hides it.
        """
        folder = self.folder(path)
        name = next(prefixes(path[len(folder) + 1 :]))
        return [one for one in self._by_folder.get(folder, ()) if not self._is_hidden(one, folder, name)]

    def _is_hidden(self, environment: Environment, folder: str, name: str) -> bool:
        earlier = environment.folders[: environment.folders.index(folder)]
        package = name if "." in name else f"{name}/__init__.py"
        return any(self._contents.tree.find(f"{one}/{package}") for one in earlier)

    def folder(self, path: str) -> str:
        """Return the folder of packages that a file is in; empty if it is in none.

        Of a folder of PYTHONPATH only what has a module's name counts: others are as a build leaves them.
        """
        match = _FOLDER.fullmatch(path)
        if match and match["folder"] in self._by_folder:
            return match["folder"]
        holders = (folder for folder in self._added if path.startswith(f"{folder}/"))
        return next((one for one in holders if all(map(str.isidentifier, path[len(one) + 1 :].split("/")[:-1]))), "")

    def _installed(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Return the own folders of each Python, by its prefix and version."""
        folders: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        has_shared = False
        for path in (*self._contents.distributions, *self._contents.binaries):
            budget.check()
            if match := _FOLDER.fullmatch(path):
                prefix, version = match["prefix"], match["version"]
                if version == "3":
                    has_shared |= match["folder"] == SHARED
                else:
                    is_local = prefix == _LOCAL and (match["kind"] == "dist" or self._is_of_red_hat(version))
                    folders[_SYSTEM if is_local else prefix, version][match["folder"]] = None
        pythons = {version for prefix, version in (*folders, *self._pythons) if prefix == _SYSTEM}
        for version in pythons if has_shared else ():
            folders[_SYSTEM, version][SHARED] = None
        return {key: sorted(each, key=lambda folder: "/local/" not in folder) for key, each in folders.items()}

    def _is_of_red_hat(self, version: str) -> bool:
        """Return whether the system's Python of a version is Red Hat's, and none is below /usr/local."""
        is_alone = (_SYSTEM, version) in self._pythons and (_LOCAL, version) not in self._pythons
        return is_alone and bool(self._contents.tree.find(f"usr/lib/python{version}/site-packages"))

    @cached_property
    def _pythons(self) -> set[tuple[str, str]]:
        matches = filter(None, map(_PYTHON.fullmatch, self._contents.binaries))
        return {(match["prefix"], match["version"]) for match in matches}

    @cached_property
    def _added(self) -> list[str]:
        """The folders of PYTHONPATH that are there, after following links."""
        listed = filter(None, self._contents.folders("PYTHONPATH"))
        paths = (posixpath.normpath(posixpath.join("/", self._contents.folder, path)) for path in dict.fromkeys(listed))
        places = filter(None, map(self._contents.tree.find, paths))
        return list(dict.fromkeys(path for path, _ in places if path))

    def _all(self) -> Iterator[Environment]:
        keys = {*self._own, *(self._pythons if self._added else ())}
        for prefix, version in sorted(keys):
            added = (folder for folder in self._added if self._is_for(folder, version))
            yield Environment(prefix, version, tuple(dict.fromkeys([*added, *self._searched(prefix, version)])))

    def _is_for(self, folder: str, version: str) -> bool:
        """Return whether a folder of PYTHONPATH is for a version, as its own name says: others do not import it."""
        match = _FOLDER.fullmatch(f"{folder}/")
        return match is None or match["version"] in {"3", version}

    def _searched(self, prefix: str, version: str) -> Iterator[str]:
        """Yield what a Python itself looks in, and its user's; that of a virtual environment as its settings say."""
        own, settings = self._own.get((prefix, version), ()), self._contents.text(f"{prefix}/{_CONFIGURATION}")
        if settings is None:
            yield from (*self._of_user(version), *own)
            return
        yield from own
        if not ALONE.search(settings) and (home := HOME.search(settings)):
            yield from self._of_user(version)
            base = posixpath.dirname(self._contents.tree.trace(home[1].decode(errors="replace")).path)
            yield from self._own.get((base, version), ())

    def _of_user(self, version: str) -> Iterable[str]:
        variables = self._contents.environment
        if variables.get("PYTHONNOUSERSITE"):
            return ()
        home = variables.get("HOME") or account.home(self._contents)
        base = variables.get("PYTHONUSERBASE") or posixpath.join(home, ".local")
        return self._own.get((base.strip("/"), version), ())
