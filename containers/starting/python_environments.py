"""The environments of Python in an image: whether each one's Python starts and may read its packages."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.binaries.loading import Fault
from containers.image.owners.package_folders import HOME
from containers.starting.account import READ, RUN
from containers.starting.execution import Execution, Started
from containers.starting.launchers import Words
from containers.starting.python_modules import PythonModules

_CONFIGURATION: Final = "/pyvenv.cfg"
_NAMES: Final = ("python", "python3")
_ASIDE: Final = re.compile(r"(^|/)(\.cache|site-packages|dist-packages|pkgs|tests?)/|^(tmp|var/tmp|proc)/")
"""Where environments are that nobody starts: caches, and what packages have for tests."""
_PYTHON: Final = re.compile(r"python(3\.\d+)t?")
_PACKAGES: Final = re.compile(r"(?P<prefix>.*?)/?lib(?:64)?/python(?P<version>3[.\d]*)t?/(?:site|dist)-packages/.")
_VERSION: Final = re.compile(rb"^\s*version(?:_info)?\s*=\s*(3\.\d+)", re.MULTILINE)
_SYSTEM: Final = {"usr", "usr/local"}
"""The prefixes of one environment."""


def faults(contents: Contents, execution: Execution, started: Iterable[Started]) -> Iterator[Fault]:
    """Yield a fault for each environment that does not start, finds no packages, or may not read them.

    ``started`` are the programs of the image; a Python among them is of an environment too.
    """
    pythons = {file for each in started for file in each.files if _PYTHON.fullmatch(posixpath.basename(file))}
    used = {posixpath.dirname(posixpath.dirname(file)) for file in pythons}
    installed = _versions(contents)
    for prefix in _environments(contents):
        name = next((name for name in _NAMES if execution.exists(f"/{prefix}/bin/{name}")), None)
        if execution.refusal(f"/{prefix}", RUN) or name is None:
            continue  # nobody of this account starts it
        python = execution.start(Words(f"/{prefix}/bin/{name}"))
        if python.refusal:
            reason, about = python.refusal
            yield Fault("start", f"/{prefix}/bin/{name}", "does not start", reason, names=(about,))
            continue
        if reason := _without_modules(contents, prefix):
            yield Fault("start", f"/{prefix}/bin/{name}", "does not start", reason, names=(f"/{prefix}",))
            continue
        used.add(prefix)
        match = _PYTHON.fullmatch(posixpath.basename(python.files[-1]))
        versions = installed.get(prefix, set())
        if match and versions and match[1] not in versions:
            reason = (
                f"it is Python {match[1]}, as /{python.files[-1]}; they are of Python {', '.join(sorted(versions))}"
            )
            yield Fault("start", f"/{prefix}/bin/{name}", "missing its packages", reason, names=(match[1],))
    yield from _unreadable(contents, execution, used)


def _environments(contents: Contents) -> Iterator[str]:
    """Yield the prefixes of virtual environments and of conda's."""
    prefixes = {path.removesuffix(_CONFIGURATION) for path in contents.texts if path.endswith(_CONFIGURATION)}
    for path, owned in contents.owned.items():
        if owned.owner.manager == "conda" and owned.owner.name == "python":
            prefixes.add(path.rpartition("conda-meta/")[0].rstrip("/"))
    yield from (prefix for prefix in sorted(prefixes) if prefix and not _ASIDE.search(f"{prefix}/"))


def _without_modules(contents: Contents, prefix: str) -> str:
    """Return why an environment's Python finds no modules of its own; empty if it may find some.

    It looks beside its `home`, then where it was built for (python/cpython 0017071, Modules/getpath.py, `CALCULATE
    prefix`).
    """
    settings = contents.text(f"{prefix}{_CONFIGURATION}") or b""
    home, version = HOME.search(settings), _VERSION.search(settings)
    if home is None or version is None:
        return ""
    place = home[1].decode(errors="replace")
    if contents.tree.find(place) or PythonModules(contents).is_volume(place):
        return ""
    release = version[1].decode()
    modules = (f"python{release}/encodings", f"python{release}t/encodings", f"python{release.replace('.', '')}.zip")
    if any(path.endswith(modules) for path, _ in contents.tree.paths()):
        return ""
    return (
        f"its pyvenv.cfg has the home {place}, which does not exist, and the image has no encodings of Python {release}"
    )


def _versions(contents: Contents) -> dict[str, set[str]]:
    """Return by prefix for which releases of Python distributions are installed there, as their records say."""
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for path, owned in contents.owned.items():
        if (
            owned.owner.manager == "pip"
            and owned.owner.name not in {"pip", "setuptools"}
            and (match := _PACKAGES.match(path))
        ):
            versions[match["prefix"]].add(match["version"])
    return versions


def _unreadable(contents: Contents, execution: Execution, prefixes: set[str]) -> Iterator[Fault]:
    """Yield a fault for each environment with files of packages that the account may not read."""
    if execution.account.uid == 0:
        return
    environments = prefixes | (_SYSTEM if prefixes & _SYSTEM else set())
    closed: defaultdict[str, list[str]] = defaultdict(list)
    for path, entry in contents.tree.paths():
        if entry is None or entry.kind not in {"file", "directory"}:
            continue
        is_open = execution.account.may(READ, entry) and (entry.kind == "file" or execution.account.may(RUN, entry))
        if not is_open and (match := _PACKAGES.match(path)) and match["prefix"] in environments:
            closed[match["prefix"]].append(path)
    for prefix, paths in sorted(closed.items()):
        first, others = paths[0], len(paths) - 1
        reason = f"user {execution.account.name} may not read it" + (
            f", nor {others} other paths of /{prefix}" if others else ""
        )
        yield Fault("start", f"/{first}", "is closed to Python", reason, names=(execution.account.name,))
