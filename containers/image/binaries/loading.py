"""Whether everything in an image loads: its programs, its libraries, and what Python opens."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import stat
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from containers.errors import abridged
from containers.image.binaries import providers
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import Binary, ElfMachine
from containers.image.binaries.library_needs import Needs
from containers.image.binaries.loader import DEFAULT_LEVEL, Loader, Missing
from containers.image.binaries.musl_loader import MuslLoader
from containers.image.binaries.plugins import Plugin, Plugins, Unmet
from containers.image.binaries.refused_files import DEFAULT_PAGE, RefusedFiles, unmapped
from containers.image.copies.families import is_grafted
from containers.image.copies.processes import Processes
from containers.image.extensions import misnamed_extensions
from containers.image.extensions.undefined_symbols import Undefined, UndefinedSymbols
from containers.image.gpu import cuda_releases
from containers.image.gpu.host_libraries import HostLibraries
from containers.image.owners.debian_packages import DebianPackages
from containers.image.owners.environments import Environments

_EXCEPTIONS: Final = Path(__file__).with_name("exceptions.toml")
_MUSL: Final = re.compile(r"ld-musl-[^/]+\.so\.1$")
_PACKAGES: Final = re.compile(r"/python(3\.\d+t?)/(?:site|dist)-packages/")
_LIBRARY_OF_MUSL: Final = re.compile(r"libc\.(?:musl-|so$)")


class Fault(NamedTuple):
    """What keeps a file from being loaded.

    ``kind`` is ``library``, ``plugin``, ``version``, ``symbol``, ``cuda``, ``file``, ``refused``, ``host``, ``loader``,
    ``copies`` or ``requirement``; ``missing`` what the file lacks, and ``reason`` why. ``users`` are files that load
    it, itself not among them. Paths begin with a slash.
    ``provider`` says what would provide it, empty if that is not known. ``names`` are the libraries, symbols, versions
    or packages that it is about, all of them; ``missing`` may name the first alone.
    """

    kind: str
    file: str
    missing: str
    reason: str
    users: tuple[str, ...] = ()
    provider: str = ""
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the fault as one line."""
        users = f"; needed by {abridged(self.users, 2)}" if self.users else ""
        provider = f"; {self.provider} has it" if self.provider else ""
        return f"{self.file}: {self.missing}{f': {self.reason}' if self.reason else ''}{users}{provider}"


@dataclass
class Loading:
    """What became of an image's ELF files.

    ``host`` has the libraries that only a host provides, ``preloaded`` those that a Python package must have opened
    before, ``optional`` those that may be missing; each by name with the files that need it. ``sonames`` has the files
    of each name that several different ones give. ``not_resolved`` says what was not read, and of how many files.
    ``plugins`` are the libraries that others open by name while they run. ``ignored`` are missing libraries that the
    image preloads, by name, with the reason: the loader says so and goes on. ``hiding`` has libraries of the image that
    processes get in place of the host's, by name. ``processes`` are those of each loader.
    """

    loader: str = ""
    resolved: int = 0
    faults: list[Fault] = field(default_factory=list)
    host: dict[str, list[str]] = field(default_factory=dict)
    preloaded: dict[str, list[str]] = field(default_factory=dict)
    optional: dict[str, list[str]] = field(default_factory=dict)
    sonames: dict[str, list[str]] = field(default_factory=dict)
    not_resolved: dict[str, int] = field(default_factory=dict)
    plugins: list[Plugin] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    hiding: dict[str, list[str]] = field(default_factory=dict)
    processes: list[Processes] = field(default_factory=list, repr=False)

    def skip(self, reason: str) -> None:
        """Count a file that is not resolved."""
        self.not_resolved[reason] = self.not_resolved.get(reason, 0) + 1


@dataclass(frozen=True)
class Exceptions:
    """What is no fault: patterns of paths and names, and ``symbols`` that a process brings itself.

    ``one`` has patterns of files of which one in a folder must load, unless a file of the second name is beside them.
    ``archs`` has the least compute capability, 80 for 8.0, that files are compiled for.
    """

    host: tuple[str, ...]
    gpu: tuple[str, ...]
    optional: tuple[tuple[str, str], ...]
    one: tuple[tuple[str, str], ...]
    symbols: tuple[tuple[str, re.Pattern[bytes]], ...]
    archs: tuple[tuple[str, int], ...]

    def is_host(self, library: str) -> bool:
        """Return whether only a host provides a library."""
        return any(fnmatch.fnmatchcase(library, pattern) for pattern in self.host)

    def hides_gpu_code(self, soname: str) -> bool:
        """Return whether a library has GPU code in a format of its own."""
        return any(fnmatch.fnmatchcase(soname, pattern) for pattern in self.gpu)

    def leaves_out(self, path: str, capability: int) -> bool:
        """Return whether a file at a path is not compiled for a compute capability, 80 for 8.0."""
        return any(capability < least and fnmatch.fnmatchcase(path, file) for file, least in self.archs)

    def is_optional(self, file: str, library: str) -> bool:
        """Return whether a file at a path may lack a library."""
        return any(
            fnmatch.fnmatchcase(file, where) and fnmatch.fnmatchcase(library, name) for where, name in self.optional
        )

    def may_lack_any(self, file: str) -> bool:
        """Return whether a file at a path may lack any library."""
        return any(name == "*" and fnmatch.fnmatchcase(file, where) for where, name in self.optional)

    def brought(self, file: str, symbol: bytes) -> bool:
        """Return whether the process that opens a file brings a symbol."""
        return any(fnmatch.fnmatchcase(file, where) and pattern.match(symbol) for where, pattern in self.symbols)


@cache
def exceptions() -> Exceptions:
    """Return the table of exceptions."""
    table = tomllib.loads(_EXCEPTIONS.read_text(encoding="utf-8"))
    return Exceptions(
        tuple(table["host"]["libraries"]),
        tuple(table["gpu"]["libraries"]),
        tuple(
            (file, library)
            for row in table.get("optional", [])
            for file in row["files"]
            for library in row["libraries"]
        ),
        tuple((row["files"], row["unless"]) for row in table["one"]),
        tuple((file, re.compile(row["symbols"].encode())) for row in table["process"] for file in row["files"]),
        tuple((file, row["least"]) for row in table["arch"] for file in row["files"]),
    )


def resolve(contents: Contents, machine: ElfMachine, level: str = DEFAULT_LEVEL, page: int = DEFAULT_PAGE) -> Loading:
    """Resolve each ELF file of an image as the loader of a machine would, glibc's or musl's; pages are of the host."""
    result = Loading()
    glibc, musl = Loader(contents, machine, level), MuslLoader(contents, machine)
    files: dict[Loader, list[str]] = {glibc: [], musl: []}
    for path in _selected(contents, machine, result, page):
        binary = contents.binaries[path]
        of_musl = _is_of_musl(binary) or (musl.present and _may_be_of_musl(binary, glibc))
        if of_musl and not musl.present:
            result.skip("musl")
        elif binary.of_glibc and not of_musl:
            result.faults.append(Fault("file", f"/{path}", "cannot be loaded", f"glibc refuses it: {binary.of_glibc}"))
        else:
            files[musl if of_musl else glibc].append(path)
    for loader, paths in files.items():
        if paths:
            _Resolution(contents, loader, paths, result, page)
    for path, reason in misnamed_extensions.misnamed(contents, machine):
        result.faults.append(Fault("file", f"/{path}", "cannot be imported", reason))
    for path, size in misnamed_extensions.too_short(contents):
        if not exceptions().is_host(posixpath.basename(path)):  # the host's is mounted over it
            reason = f"it has {size} bytes, which is no library; install the package that has it again"
            result.faults.append(Fault("file", f"/{path}", "cannot be loaded", reason))
    result.faults.sort()
    return result


def _selected(contents: Contents, machine: ElfMachine, result: Loading, page: int) -> Iterator[str]:
    """Yield the paths of the files that a machine's loaders read, and count the others."""
    for path, binary in sorted(contents.binaries.items()):
        if binary.problem:
            if contents.entries[path].mode & 0o111 or ".so" in posixpath.basename(path):
                result.faults.append(Fault("file", f"/{path}", "cannot be loaded", binary.problem))
            else:
                result.skip(binary.problem.partition(":")[0])
        elif binary.loaded and binary.machine != machine:
            result.skip(f"for {binary.machine}")
        elif binary.loaded:
            yield path
        elif binary.kind == "static" and binary.machine == machine and (why := unmapped(binary, page)):
            result.faults.append(Fault("refused", f"/{path}", "cannot be mapped", why))


def _is_of_musl(binary: Binary) -> bool:
    """Return whether a file names musl's loader, or its library: as Alpine does, or as compilers for all musl do.

    Android's libraries need `libc.so` too, and are as useless to glibc.
    """
    named = _MUSL.search(binary.interpreter)
    return bool(named or (not binary.interpreter and any(map(_LIBRARY_OF_MUSL.match, binary.needed))))


def _may_be_of_musl(binary: Binary, glibc: Loader) -> bool:
    """Return whether a file may be for musl, in an image with musl: there is no other loader."""
    return not binary.interpreter and not glibc.present


class _Resolution:
    """The files of one loader, whose faults and facts are added to a result."""

    def __init__(self, contents: Contents, loader: Loader, files: list[str], result: Loading, page: int) -> None:
        self._contents, self._loader = contents, loader
        self._sonames, self._environments = self._named(), Environments(contents, loader.machine)
        self._packages = DebianPackages(contents)
        self.result = result
        self._libraries, self._versions, self._releases = Needs(), Needs(), Needs()
        self._runtimes: dict[tuple[str, str], str] = {}
        self._reasons: dict[tuple[str, str], Missing] = {}
        self._incomplete: dict[str, set[str]] = defaultdict(set)
        self._before: dict[tuple[str, str], str | None] = {}
        self._files, self._pythons = files, dict[str, Mapping[str, str]]()
        self._opened: dict[str, list[str]] = defaultdict(list)
        self._ignored: dict[str, Missing] = {}
        self._preloaded: set[str] = set()
        if not loader.present:
            self._without_loader(files)
            return
        name = loader.place.name if loader.place else ""
        result.loader = f"{result.loader} and {name}" if result.loader else name
        result.resolved += len(files)
        self._plugins = Plugins(contents, loader, files)
        self._refused = RefusedFiles(contents, loader, page)
        self._host = HostLibraries(contents, loader, exceptions().is_host)
        self._processes = Processes(contents, loader)
        result.processes.append(self._processes)
        scopes = {}
        for path in files:
            scopes[path] = self._resolve(path)
        self._report_libraries()
        self._report_families()
        self._report_plugins()
        self._report_ignored()
        self._report_versions()
        self._report_releases()
        self._report_refused(files)
        self._report_hiding()
        result.faults += self._interpreters(files)
        result.faults += self._undefined(scopes)
        result.plugins += self._plugins.listed(self._broken())
        result.sonames.update(self._ambiguous(files))

    def _without_loader(self, files: Sequence[str]) -> None:
        faults = list(self._interpreters(files))
        self.result.faults += faults
        for _ in range(len(files) - len(faults)):
            self.result.skip("without a loader in the image")

    def _named(self) -> dict[str, list[str]]:
        """Return the paths of all libraries by soname and by file name."""
        named: dict[str, list[str]] = defaultdict(list)
        for path, binary in self._contents.binaries.items():
            if binary.loaded and not binary.problem:
                for name in {binary.soname or posixpath.basename(path), posixpath.basename(path)}:
                    named[name].append(path)
        return named

    def _resolve(self, path: str) -> list[str]:
        """Resolve the process of a file, and return the paths of its objects."""
        privileged = bool(self._contents.entries[path].mode & (stat.S_ISUID | stat.S_ISGID))
        process = self._loader.process(path, privileged=privileged)
        program = self._contents.binaries[path].kind == "program"
        for by, needed, _ in process.links:
            self._libraries.met.add((by.place.path, needed))
        self._ignored.update((missing.needed, missing) for missing in process.ignored)
        names = (*self._loader.preloaded, *self._loader.always_preloaded)
        self._preloaded.update(name for name in names if process.by_name.get(name) in process.objects[1:])
        for missing in process.missing:
            key = (missing.by.place.path, missing.needed)
            self._libraries.missed(key, path, program=program)
            self._reasons.setdefault(key, missing)
            if before := self._opened_before(*key, missing):
                self._opened[path].append(before)
            else:
                self._incomplete[path].add(missing.needed)
                self._incomplete[missing.by.place.path].add(missing.needed)
        for lacking in process.versions():
            needed = lacking.version.library
            # What opens it may have opened such a library before.
            if lacking.library is None and (not needed or needed in self._sonames):
                continue
            named = lacking.library.place.name if lacking.library else f"{needed}, which is in no process"
            key = (lacking.by.place.path, f"{lacking.version.name} of {named}")
            self._versions.missed(key, path, program=program)
            self._incomplete[path].add(lacking.version.library)
            self._incomplete[lacking.by.place.path].add(lacking.version.library)
        for library, major, runtime in cuda_releases.mismatched(process):
            key = (library.place.path, major)
            self._releases.missed(key, path, program=program)
            self._runtimes.setdefault(key, runtime.place.path)
        scope = [loaded.place.path for loaded in process.objects]
        links = len(process.links)
        self._plugins.open(process, path, program=program)
        self._refused.note(process, path, len(scope), program=program)
        self._host.note(process)
        self._processes.note(process, path, program=program)
        self._libraries.met.update((by.place.path, needed) for by, needed, _ in process.links[links:])
        return scope

    def _report_libraries(self) -> None:
        for (path, needed), users in self._libraries.unmet():
            missing = self._reasons[path, needed]
            listed = self._no_fault(path, needed, missing)
            if listed is None and (self._leaves_out(path, needed, users) or self._is_idle(path, needed, users)):
                listed = self.result.optional
            if listed is not None:
                listed.setdefault(needed, []).append(f"/{path}")
            else:
                others = tuple(f"/{one}" for one in users if one != path)
                elsewhere = self._elsewhere(path, needed)
                reason = missing.problem or self._why(missing, elsewhere)
                provider = "" if elsewhere else providers.provider(needed)
                fault = Fault("library", f"/{path}", f"missing {needed}", reason, others, provider, (needed,))
                self.result.faults.append(fault)

    def _report_families(self) -> None:
        """Report files that may each be missing, and of which one must load."""
        lacking: defaultdict[str, list[str]] = defaultdict(list)
        for name, paths in sorted(self.result.optional.items()):
            for path in paths:
                lacking[path.lstrip("/")].append(name)
        for pattern, other in exceptions().one:
            by_folder: defaultdict[str, list[str]] = defaultdict(list)
            for path in fnmatch.filter(self._files, pattern):
                by_folder[posixpath.dirname(path)].append(path)
            for folder, paths in by_folder.items():
                if all(map(lacking.get, paths)) and not self._contents.tree.find(f"{folder}/{other}"):
                    names, others = tuple(lacking[paths[-1]]), map(posixpath.basename, paths)
                    reason = f"one of {', '.join(others)} must load"
                    fault = Fault("library", f"/{paths[-1]}", f"missing {', '.join(names)}", reason, names=names)
                    self.result.faults.append(fault)

    def _report_plugins(self) -> None:
        for unmet in self._plugins.unmet():
            listed = self._no_fault(unmet.opener, unmet.name, unmet.missing) if unmet.missing else None
            if listed is not None:
                listed.setdefault(unmet.name, []).append(f"/{unmet.opener}")
            elif not unmet.unused:
                others = tuple(f"/{one}" for one in unmet.users if one != unmet.opener)
                missing = f"missing {unmet.name}, which it opens"
                reason, names = self._why_plugin(unmet), (unmet.name,)
                self.result.faults.append(Fault("plugin", f"/{unmet.opener}", missing, reason, others, names=names))

    def _report_ignored(self) -> None:
        for name, missing in self._ignored.items():
            if name not in self._preloaded and not exceptions().is_host(name):
                elsewhere = [] if "/" in name else self._elsewhere("", name)
                self.result.ignored[name] = missing.problem or self._why(missing, elsewhere)

    def _why_plugin(self, unmet: Unmet) -> str:
        why = ""
        if unmet.missing:
            elsewhere = self._elsewhere(unmet.opener, unmet.name)
            why = unmet.missing.problem or self._why(unmet.missing, elsewhere)
        return "; ".join(filter(None, (why, unmet.reason)))

    def _no_fault(self, path: str, needed: str, missing: Missing) -> dict[str, list[str]] | None:
        """Return the table of the result for a missing library that is no fault."""
        table = exceptions()
        if table.is_host(needed):
            return self.result.host
        if table.is_optional(path, needed):
            return self.result.optional
        return self.result.preloaded if self._opened_before(path, needed, missing) else None

    def _leaves_out(self, path: str, needed: str, users: Iterable[str]) -> bool:
        """Return whether a library is a plugin whose package does without what it misses."""
        return self._is_plugin(path, users) and self._packages.leaves_out(path, needed)

    def _is_idle(self, path: str, needed: str, users: Iterable[str]) -> bool:
        """Return whether a library that a wheel's repair copied is for files that are gone, or that do without another.

        A file is gone if another wheel has replaced it: of OpenCV's wheels, the last one installed has its own `cv2`.
        """
        openers = [one for one in users if not is_grafted(one)]
        needless = all(exceptions().is_optional(one, needed) for one in openers)
        return is_grafted(path) and needless and (bool(openers) or self._environments.has_lost(path))

    def _is_plugin(self, path: str, users: Iterable[str]) -> bool:
        """Return whether a library is in no folder where others find it, and no program needs it."""
        by_programs = any(self._contents.binaries[one.lstrip("/")].kind == "program" for one in (path, *users))
        return not by_programs and self._loader.elsewhere(posixpath.basename(path)) != path

    def _opened_before(self, path: str, needed: str, missing: Missing) -> str | None:
        """Return the library that Python must have opened before: of a file's environment, or of Python itself."""
        key, environment = (path, needed), self._environments.of(path)
        if not environment or missing.problem:
            return None
        if key not in self._before:
            own = (
                one
                for one in self._elsewhere(*key)
                if self._environments.of(one) == environment
                and self._contents.binaries[one].machine == self._loader.machine
                and self._may_open(path, needed, one)
            )
            self._before[key] = next(own, None) or self._of_python(path).get(needed)
        return self._before[key]

    def _may_open(self, path: str, needed: str, library: str) -> bool:
        """Return whether a file's package opens another one's library first.

        A copy of the system's library, as torch has libgomp.so.1, is there for those that need torch.
        """
        if not providers.is_of_system(needed) or self._environments.needs(path, library):
            return True
        others = {one for name in self._contents.binaries[path].needed for one in self._sonames.get(name, ())}
        packages = map(self._environments.package, others - set(self._sonames[needed]))
        return self._environments.package(library) in packages

    def _of_python(self, path: str) -> Mapping[str, str]:
        """Return the libraries by soname that the Pythons of an extension's release have in their own process."""
        version = _PACKAGES.search(path)
        if version is None:
            return {}
        if version[1] not in self._pythons:
            python = re.compile(rf"(?:.*/)?bin/python{re.escape(version[1])}")
            processes = [self._loader.process(one) for one in self._files if python.fullmatch(one)]
            libraries = [one for process in processes for one in process.objects[1:]]
            self._pythons[version[1]] = {one.binary.soname: one.place.path for one in libraries}
        return self._pythons[version[1]]

    def _elsewhere(self, path: str, needed: str) -> list[str]:
        """Return the paths of libraries with a name, those nearest to a file first."""
        return sorted((one for one in self._sonames.get(needed, ()) if one != path), key=partial(_distance, path))

    def _broken(self) -> set[str]:
        """Return the paths of files that do not load, and of their loaders."""
        kinds = {"library", "version", "symbol", "file", "refused"}
        faults = [fault for fault in self.result.faults if fault.kind in kinds]
        broken = {path.lstrip("/") for fault in faults for path in (fault.file, *fault.users)}
        return broken.union(path.lstrip("/") for paths in self.result.optional.values() for path in paths)

    def _why(self, missing: Missing, elsewhere: Sequence[str]) -> str:
        """Return why a library is missing, by where the image has it, the nearest place first."""
        if not elsewhere:
            return "not in the image"
        nearest = elsewhere[0]
        if missing.by.binary.only_own_folders:
            return f"/{nearest} is in a default folder, and the file is linked with nodefaultlib"
        if configured := self._loader.elsewhere(missing.needed):
            return f"/{configured} is not in /etc/ld.so.cache; run ldconfig"
        machine = self._contents.binaries[nearest].machine
        if machine != self._loader.machine:
            return f"/{nearest} is for {machine}"
        opened = missing.by.place.name
        through = f", opened as {opened}" if opened != f"/{missing.by.place.path}" else ""
        return f"/{nearest} is in no folder that is searched{through}"

    def _report_versions(self) -> None:
        for (path, version), users in self._versions.unmet():
            library = posixpath.basename(version)
            if exceptions().is_optional(path, library):
                self.result.optional.setdefault(library, []).append(f"/{path}")
                continue
            others = tuple(f"/{one}" for one in users if one != path)
            missing, names = f"missing version {version}", (version.partition(" of ")[0],)
            self.result.faults.append(Fault("version", f"/{path}", missing, "", others, names=names))

    def _report_releases(self) -> None:
        for (path, major), users in self._releases.unmet():
            others = tuple(f"/{one}" for one in users if one != path)
            reason = f"it is for CUDA {self._contents.binaries[path].cuda}, beside /{self._runtimes[path, major]}"
            names = (f"CUDA {major}",)
            self.result.faults.append(Fault("cuda", f"/{path}", f"missing {names[0]}", reason, others, names=names))

    def _report_refused(self, files: Iterable[str]) -> None:
        for one in self._refused.refused(files):
            users = tuple(f"/{user}" for user in one.users)
            self.result.faults.append(Fault("refused", f"/{one.path}", one.missing, one.reason, users))

    def _report_hiding(self) -> None:
        for one in self._host.hiding():
            users = tuple(f"/{user}" for user in one.users)
            if one.is_stub:
                hides, reason = f"hides {one.name} of the host", "it is a stub, to link with, and its functions fail"
                self.result.faults.append(Fault("host", one.path, hides, reason, users, names=(one.name,)))
            else:
                self.result.hiding.setdefault(one.name, []).append(one.path)

    def _undefined(self, scopes: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
        users: dict[str, list[str]] = defaultdict(list)
        for path, scope in scopes.items():
            for one in scope:
                if one != path:
                    users[one].append(f"/{path}")
        lookup = UndefinedSymbols(self._contents, self._environments, scopes, self._opened, self._incomplete)
        for row in lookup.undefined():
            names = row.names if row.whose else [name for name in row.names if not exceptions().brought(row.path, name)]
            of_torch = row.whose == "torch" and exceptions().is_optional(row.path, "libtorch.so")
            # A plugin that may lack any library may lack what none defines.
            if not names or of_torch or exceptions().may_lack_any(row.path):
                continue
            # What opens it has opened others before, which define them: see DebianPackages.
            is_plugin = not row.whose and self._is_plugin(row.path, users[row.path])
            if is_plugin and self._packages.are_whole(scopes[row.path]):
                continue
            symbols = tuple(name.decode(errors="replace") for name in names)
            missing, reason = f"missing symbol {abridged(symbols)}", self._why_undefined(row)
            yield Fault("symbol", f"/{row.path}", missing, reason, tuple(users[row.path]), names=symbols)

    def _why_undefined(self, row: Undefined) -> str:
        if not row.whose:
            return "no library defines it"
        place = self._environments.of(row.path) or ""
        owner = f"{row.whose} of /{place.strip('/')}"
        return f"it is built for another {row.whose.partition(' ')[0]}, and {owner} does not define it"

    def _interpreters(self, files: Iterable[str]) -> Iterator[Fault]:
        for path in files:
            binary = self._contents.binaries[path]
            if binary.kind == "program" and binary.interpreter:
                place = self._contents.tree.find(binary.interpreter)
                loader = self._contents.binaries.get(place[0]) if place else None
                if loader is None or not (loader.problem or loader.machine == binary.machine):
                    why = f"/{place[0]} is for {loader.machine}" if place and loader else "no such loader"
                    names = (binary.interpreter,)
                    yield Fault("loader", f"/{path}", f"missing {names[0]}", why, names=names)

    def _ambiguous(self, files: Iterable[str]) -> dict[str, list[str]]:
        """Return the paths of different libraries with one soname."""
        given: dict[str, list[str]] = defaultdict(list)
        for path in files:
            if soname := self._contents.binaries[path].soname:
                given[soname].append(path)
        several = {}
        for soname, paths in sorted(given.items()):
            different: list[tuple[Binary, str]] = []
            for path in paths:
                if all(self._contents.binaries[path] != binary for binary, _ in different):
                    different.append((self._contents.binaries[path], f"/{path}"))
            if len(different) > 1:
                several[soname] = [path for _, path in different]
        return several


def _distance(path: str, other: str) -> tuple[int, str]:
    """Return how far apart two paths are: the more folders they share, the less."""
    return -len(posixpath.commonpath((path, other))), other
