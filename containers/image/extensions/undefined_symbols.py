"""The symbols of an image's files that nothing defines.

A program has what its libraries define. What opens a library may bring more, so that its symbols count as missing only
if no file defines them that can be in the same process: none of its Python environment, and none outside of them. The
names of torch count by what the file needs and by the environment's torch, and those of Python by its Pythons: Python
opens extensions apart from each other (`RTLD_LOCAL`), and resolves all of their symbols at once (`RTLD_NOW`).
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import Binary, symbol_hash
from containers.image.owners.environments import Environments

_LIBRARY_OF_TORCH: Final = re.compile(r"lib(?:torch|c10)[\w-]*\.so")
_OF_TORCH: Final = re.compile(rb"_Z(?:T[IVST])?N?K?(?:3c10|2at|5torch|6caffe2)|(?:aoti_)?torch_\w|THP[A-Z]")
"""Names in torch's namespaces (Itanium C++ ABI, mangling), and in C."""
_OF_PYTHON: Final = re.compile(rb"_?Py[A-Z_]")
_PYTHON: Final = re.compile(r"(?:.*/)?(?:bin/python|lib/libpython)(3\.\d+)(?:\.so\.1\.0)?")
_EXTENSION: Final = re.compile(
    r".*/lib/python(?P<version>3\.\d+)/.*/(?P<module>[^/.]+)(?:\.abi3|\.cpython-3(?P<minor>\d+)-[\w-]+)?\.so"
)
_FOR_ONE_TORCH: Final = re.compile(
    r"(.*torch|.*(?=_\d_\d+_\d))[_-]?\d[\d._]*?(?:[_-](?:cpu|cuda|rocm)\w*)?((?:\.abi3|\.cpython-[\w-]+)?\.so)"
)
"""A file of which a package has one for each release of torch, as NIXL, DGL, torch_c_dlpack_ext and Mooncake."""

_SHARED: Final = re.compile(rb"(?mi)^include-system-site-packages *= *true")


class Undefined(NamedTuple):
    """A file with its undefined symbols, and their owner: `torch`, `Python` or empty."""

    path: str
    names: tuple[bytes, ...]
    whose: str = ""


class UndefinedSymbols:
    """The undefined symbols of an image's files.

    By a file's path, ``scopes`` has the paths of its process, itself first, ``opened`` the libraries that Python must
    have opened before it, and ``incomplete`` the names of what its process misses otherwise.
    """

    def __init__(
        self,
        contents: Contents,
        environments: Environments,
        scopes: Mapping[str, Sequence[str]],
        opened: Mapping[str, Iterable[str]],
        incomplete: Mapping[str, Iterable[str]],
    ) -> None:
        self._binaries, self._incomplete = contents.binaries, incomplete
        self._places = {path: environments.of(path) for path in contents.binaries}
        self._scopes = {
            path: [*scope, *(one for library in opened.get(path, ()) for one in scopes.get(library, ()))]
            for path, scope in scopes.items()
        }
        # A venv with the packages of its system has several, and so has a Python with PYTHONPATH.
        shared = (_SHARED.search(text) for path, text in contents.texts.items() if path.endswith("pyvenv.cfg"))
        self._are_one = "PYTHONPATH" in contents.environment or any(shared)
        self._defined: dict[str, frozenset[int]] = {}

    def undefined(self) -> Iterator[Undefined]:
        """Yield the files with such symbols; of files that are each for one torch, none if one is for this torch."""
        unknown, narrower = self._unknown(), [*self._of_torch(), *self._of_python()]
        broken = {row.path for row in narrower}
        taken = {_for_any_torch(path) for path in self._scopes if path not in broken}
        for row in narrower:
            if (name := _for_any_torch(row.path)) == row.path or name not in taken:
                yield row
        for path in self._scopes:
            if path in self._incomplete:
                continue
            place = self._place(path)
            missing = [name for name in _names(self._binaries[path]) if place in unknown.get(symbol_hash(name), ())]
            if self._binaries[path].kind == "program":
                missing += self._of_program(path)
            if missing and path not in broken:
                yield Undefined(path, tuple(dict.fromkeys(missing)))

    def _unknown(self) -> Mapping[int, set[str | None]]:
        """Return the environments that lack a definition of a symbol, by its hash; None stands for what is in none."""
        unknown: defaultdict[int, set[str | None]] = defaultdict(set)
        for path in self._scopes:
            for name in _names(self._binaries[path]):
                unknown[symbol_hash(name)].add(self._place(path))
        pending = set(unknown)
        for path in {path for scope in self._scopes.values() for path in scope}:
            place = self._place(path)
            for value in pending.intersection(self._binaries[path].defined):
                without = unknown[value]
                without -= {place, None} if place else set(without)
                if not without:
                    pending.remove(value)
        return unknown

    def _of_torch(self) -> Iterator[Undefined]:
        """Yield the files with names of torch that their environment's torch does not define."""
        by_place: defaultdict[str | None, list[str]] = defaultdict(list)
        for path, scope in self._scopes.items():
            lacks_torch = any(_is_of_torch(name) for name in self._incomplete.get(path, ()))
            if self._places[path] and not lacks_torch and any(map(_is_of_torch, scope[1:])):
                by_place[self._place(path)].append(path)
        for place, paths in by_place.items():
            torch = [path for path in self._scopes if _is_of_torch(path) and self._place(path) == place]
            for path, names in self._undefined_by(torch, paths, _OF_TORCH):
                yield Undefined(path, names, "torch")

    def _of_python(self) -> Iterator[Undefined]:
        """Yield the extensions with names of Python that no Python of their environment's release defines."""
        by_release: defaultdict[str, list[str]] = defaultdict(list)
        pythons: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._scopes:
            if match := _PYTHON.fullmatch(path):
                pythons[match[1]] += self._scopes[path]
            elif (match := _EXTENSION.fullmatch(f"/{path}")) and self._is_extension(path, match):
                by_release[match["version"]].append(path)
        for release, paths in by_release.items():
            if python := pythons.get(release):
                for path, names in self._undefined_by(python, paths, _OF_PYTHON):
                    yield Undefined(path, names, f"Python {release}")

    def _is_extension(self, path: str, match: re.Match[str]) -> bool:
        is_own = match["minor"] is None or match["version"] == f"3.{match['minor']}"
        return is_own and self._binaries[path].is_module(match["module"])

    def _undefined_by(
        self, definers: Iterable[str], paths: Iterable[str], pattern: re.Pattern[bytes]
    ) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """Yield the names of a pattern, without those of the definers and of the libraries that a file needs."""
        needed = {path: [name for name in _names(self._binaries[path]) if pattern.match(name)] for path in paths}
        unknown = {symbol_hash(name) for names in needed.values() for name in names}
        for path in dict.fromkeys(definers):
            unknown.difference_update(self._binaries[path].defined)
        for path, names in needed.items():
            if missing := unknown.intersection(map(symbol_hash, names)):
                for one in self._scopes[path]:
                    missing.difference_update(self._binaries[one].defined)
                if lacking := tuple(dict.fromkeys(name for name in names if symbol_hash(name) in missing)):
                    yield path, lacking

    def _place(self, path: str) -> str | None:
        """Return the environment of a file; all are one where one Python has the packages of several."""
        return "" if self._are_one and self._places[path] else self._places[path]

    def _of_program(self, path: str) -> list[bytes]:
        """Return the symbols of a program itself that none of its libraries defines."""
        names = {symbol_hash(name): name for name in _names(self._binaries[path])}
        missing = frozenset(names)
        for one in self._scopes[path]:
            missing -= self._hashes(one)  # which looks each missing one up, and not each defined one
        return [name for value, name in names.items() if value in missing]

    def _hashes(self, path: str) -> frozenset[int]:
        if path not in self._defined:
            self._defined[path] = frozenset(self._binaries[path].defined)
        return self._defined[path]


def _is_of_torch(path: str) -> bool:
    return bool(_LIBRARY_OF_TORCH.fullmatch(posixpath.basename(path)))


def _for_any_torch(path: str) -> str:
    """Return what the paths of files that are each for one torch have in common; another file's path."""
    match = _FOR_ONE_TORCH.fullmatch(path)
    return f"{match[1]}{match[2]}" if match else path


def _names(binary: Binary) -> list[bytes]:
    return binary.undefined.split(b"\0")[:-1]
