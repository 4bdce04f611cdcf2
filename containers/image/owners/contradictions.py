"""Python packages whose requirements contradict others of their environment, or its Python.

Compared with `uv pip check`.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from containers import budget
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import PLATFORM_MACHINES, ElfMachine
from containers.image.binaries.loading import Fault, exceptions
from containers.image.extensions.misnamed_extensions import named_for
from containers.image.extensions.numpy_api import NumpyBuild
from containers.image.owners import distributions, ownership
from containers.image.owners.distributions import Distribution
from containers.image.owners.package_folders import SHARED, Environment, PackageFolders

_EXTENSION: Final = re.compile(r"(?P<module>.*/(?P<name>[^/.]+))\.cpython-3(?P<minor>\d+t?)-(?P<platform>[^/]*)\.so")
"""An extension that one release of Python alone imports (importlib.machinery.EXTENSION_SUFFIXES)."""
_ANY_EXTENSION: Final = re.compile(r".*/[^/.]+\.(?:cpython-3\d+t?-[^/]*|abi3)\.so")
"""An extension, by a name that nothing else has."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")


class Contradiction(NamedTuple):
    """An unmet requirement in the environment at ``prefix``, and the release in its place.

    ``files`` are those that Python cannot load.
    """

    prefix: str
    by: str
    requirement: str
    has: str
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as a part of a line."""
        return f"{self.by} requires {self.requirement}, and {self.prefix} has {self.has}"

    def fault(self) -> Fault:
        """Return it as a fault of the environment, by the packages that it is about."""
        names = (self.by.split()[0], self.has.split()[0])
        missing = f"{self.by} requires {self.requirement}"
        if not self.files:
            return Fault("requirement", self.prefix, missing, f"it has {self.has}", names=names)
        file, *others = self.files
        also = f"; likewise {len(others)} more of its files" if others else ""
        return Fault("requirement", file, missing, f"{self.prefix} has {self.has}{also}", names=names)


def unmet(contents: Contents, architecture: str) -> list[Contradiction]:
    """Return what contradicts, by environment; packages that are not there are no contradiction.

    ``architecture`` is that of the image's platform.
    """
    folders = PackageFolders(contents)
    packages = _packages(contents, folders)
    requirements: dict[tuple[str, str, str], Contradiction] = {}
    for environment in folders.environments:
        for one in packages[environment].values():
            for row in _unmet(environment, packages[environment], one, architecture):
                requirements.setdefault((row.by, row.requirement, row.has), row)
    foreign = [*_foreign(contents, folders), *_of_other_processor(contents, folders, architecture)]
    return [*requirements.values(), *foreign, *_of_other_numpy(contents, folders, packages)]


def _foreign(contents: Contents, folders: PackageFolders) -> Iterator[Contradiction]:
    """Yield the extensions that the folder's Python passes over, if nothing else has the module's name.

    Without its function for Python a file is none, and opened by its path, as one of torchao 0.18.0.
    """
    extensions = {path: built for path in sorted(contents.binaries) if (built := _EXTENSION.fullmatch(path))}
    own: defaultdict[str, set[str]] = defaultdict(set)
    for path, built in extensions.items():
        if "/lib-dynload/" in path:
            own[built["minor"]].add(built["platform"])

    def release(built: re.Match[str]) -> str:
        """Return the Python of an extension, with its platform if no Python of that release is built for it."""
        minor, platform = built["minor"], built["platform"]
        return f"3.{minor}" if platform in own.get(minor, {platform}) else f"3.{minor} for {platform}"

    known = {(built["module"], release(built)) for built in extensions.values()}
    for path, built in extensions.items():
        budget.check()
        environments = folders.of(path)
        if not environments or path.startswith(f"{SHARED}/"):
            continue
        if any(environment.version == release(built) for environment in environments):
            continue
        if not contents.binaries[path].is_module(built["name"]):
            continue
        module, version = built["module"], environments[0].version
        others = (f"{module}{suffix}" for suffix in (".py", ".abi3.so", ".so"))
        if (module, version) in known or any(contents.tree.find(other) for other in others):
            continue
        yield Contradiction(environments[0].place, f"/{path}", f"Python {release(built)}", f"Python {version}")


def _of_other_processor(contents: Contents, folders: PackageFolders, architecture: str) -> Iterator[Contradiction]:
    """Yield the packages whose extensions are for another processor, as `pip install --platform` may bring them.

    All of a package are, or those whose names say that they are for this one: a package may have files for several.
    Debian's and Red Hat's packages for another processor are for compiling, and installed as such.
    """
    machine = PLATFORM_MACHINES.get(architecture)
    extensions = {
        path: environments[0]
        for path in contents.binaries
        if _ANY_EXTENSION.fullmatch(path) and (environments := folders.of(path))
    }
    if machine is None or all(contents.binaries[path].machine == machine for path in extensions):
        return
    known = ownership.owners(contents, extensions)
    by_package: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, environment in extensions.items():
        owner = known.get(path)
        if owner is None or owner.manager in {"pip", "conda"}:
            by_package[environment.place, str(owner or f"/{posixpath.dirname(path)}")].append(path)
    for (prefix, by), paths in sorted(by_package.items()):
        if other := _other(contents, machine, paths):
            machines = sorted({str(contents.binaries[path].machine) for path in other})
            files = tuple(f"/{path}" for path in sorted(other))
            yield Contradiction(prefix, by, f"{' and '.join(machines)} by its build", f"Python for {machine}", files)


def _other(contents: Contents, machine: ElfMachine, paths: Sequence[str]) -> list[str]:
    """Return the extensions of a package that are for another processor, and not for choice."""
    other = [path for path in paths if contents.binaries[path].machine != machine]
    if other == paths and not any(contents.binaries[path].problem for path in paths):
        return other
    return [path for path in other if named_for(path, machine) and not contents.binaries[path].problem]


def _of_other_numpy(
    contents: Contents, folders: PackageFolders, packages: Mapping[Environment, Mapping[str, Distribution]]
) -> Iterator[Contradiction]:
    """Yield the packages with files that are built for another NumPy than the environment's.

    A package with files for this NumPy too opens these, as h5py does. A file that another environment has the right
    NumPy for is of use there.
    """
    places = dict(_numpys(contents, folders, packages))
    known = ownership.owners(contents, places)
    by_package: defaultdict[tuple[str, str, Distribution], list[tuple[str, NumpyBuild]]] = defaultdict(list)
    refused: set[str] = set()
    for path, (build, numpys) in places.items():
        bad = [one for one in numpys if not _admits(build.releases, one[1].version)]
        if bad == numpys and build.refuses and not exceptions().is_optional(path, "numpy"):
            refused.add(path)
        place, numpy = (bad or numpys)[0]
        by_package[place, str(known.get(path) or f"/{path}"), numpy].append((path, build))
    for (place, by, numpy), files in by_package.items():
        if not any(_admits(build.releases, numpy.version) for _, build in files):
            refusing = tuple(f"/{path}" for path, _ in files if path in refused)
            yield Contradiction(place, by, f"numpy{files[0][1].releases} by its build", str(numpy), refusing)


def _numpys(
    contents: Contents, folders: PackageFolders, packages: Mapping[Environment, Mapping[str, Distribution]]
) -> Iterator[tuple[str, tuple[NumpyBuild, list[tuple[str, Distribution]]]]]:
    """Yield the files that call NumPy, each with its build and the NumPy of each environment around it."""
    for path, binary in sorted(contents.binaries.items()):
        seen = [(one.place, packages[one].get("numpy")) for one in _importing(path, folders)] if binary.numpy else []
        numpys = [(place, numpy) for place, numpy in seen if numpy]
        if binary.numpy and numpys:
            yield path, (binary.numpy, numpys)


def _importing(path: str, folders: PackageFolders) -> list[Environment]:
    """Return the environments that see an extension and have a Python of its name."""
    built = _EXTENSION.fullmatch(path)
    return [one for one in folders.of(path) if built is None or one.version == f"3.{built['minor']}"]


def _packages(contents: Contents, folders: PackageFolders) -> dict[Environment, dict[str, Distribution]]:
    """Return the packages of each environment by name: the one that Python finds first."""
    by_folder: defaultdict[str, dict[str, Distribution]] = defaultdict(dict)
    for path, distribution in contents.distributions.items():
        budget.check()
        folder = distributions.folder(path)
        known = by_folder[folder].get(distribution.name, distribution)
        versions = {known.version, distribution.version} - {""}
        if len(versions) > 1 and _admits(f">{distribution.version}", known.version):
            continue  # a record that an upgrade left
        by_folder[folder][distribution.name] = distribution.joined(known)
    return {
        environment: {
            name: one
            for folder in reversed(environment.folders)
            for name, one in by_folder.get(folder, {}).items()
            if one.version
        }
        for environment in folders.environments
    }


def _unmet(
    environment: Environment, installed: Mapping[str, Distribution], one: Distribution, architecture: str
) -> Iterator[Contradiction]:
    prefix, version = environment.place, environment.version.rstrip("t")
    python = f"{version}.{distributions.NEWEST_PATCH}"
    if one.python and not _admits(one.python, python):
        yield Contradiction(prefix, str(one), f"Python {one.python}", f"Python {version}")
    for text in one.requires:
        budget.check()
        name = _NAME.match(text)
        other = installed.get(canonicalize_name(name[0])) if name else None
        if other is None or other is one:
            continue
        requirement = distributions.requirement(text)
        if requirement is None or _admits(str(requirement.specifier), other.version):
            continue
        if distributions.applies(requirement, version, architecture):
            yield Contradiction(prefix, str(one), f"{requirement.name}{requirement.specifier}", str(other))


@lru_cache(1 << 14)
def _admits(specifier: str, version: str) -> bool:
    """Return whether a version meets a specifier; one that cannot be read is met."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, ValueError):
        return True
