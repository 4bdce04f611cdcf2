"""The files that an image's pip steps may install, as uv resolves them: each by its address and SHA-256.

Only wheels count. Without one, uv would run a package's own code on this machine to learn what it requires. A source
distribution counts if the image names it as one without requirements; uv is told so.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import uv

from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.errors import SlipwayError, one_line
from containers.image.gpu.release_order import order
from containers.platform_name import architecture
from stacks import lock
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.identity import pip_packages
from stacks.spec import Packages

_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = "2.28"
"""The C library that files may ask for where the parent decides: older than that of Debian 11 and Ubuntu 20.04."""
_MANYLINUX: Final = ("2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41)))
"""The C libraries that uv knows (0.13.8, `uv pip compile --help`, --python-platform)."""
_LONGEST_CHAIN: Final = 1500
"""Characters of uv's reason why requirements have no solution: it names who requires what."""
_UNRESOLVED: Final = 1
"""uv's status where requirements have no solution; 2 is another error, such as an index that does not respond."""

_programs: Final[set[subprocess.Popen[str]]] = set()
"""The programs that run."""

_NO_SOLUTION: Final = "error: No solution found when resolving dependencies cause: "
"""What uv 0.13.8 says before the chain of requirements."""
_ABSENT: Final = re.compile(r"(\S+) was not found in the package registry")
_EMPTY: Final = re.compile(r"there are no versions of ([\w.-]+) ")
"""What it says where a page of the index lists no file."""
_REFUSED: Final = re.compile(
    r"hint: An index (?:URL )?\((?P<index>\S+)\) (?:returned a|could not be queried .*?\()\s*(?P<answer>\d{3} \w+)"
)
"""What it says at the end where an index answered 401 or 403: its packages count as absent then."""
_FAILED: Final = re.compile(r"Failed to fetch: (\S+)")
"""What it says of an address that does not respond."""
_NO_WHEEL: Final = re.compile(r"([^\s=<>]+)\S* (?:has|have) no usable wheels")
"""What it says of a package without a wheel for the Python or the platform."""
_BROKEN: Final = re.compile(r"([^\s=]+)(?:==\S+)? has an invalid package format")
"""What uv 0.13.8 says of a file that it cannot read, as one that was cut off on its way."""


class NotLockable(SlipwayError):
    """Python packages of which no hashes can be had, though the indexes respond."""


def files(
    packages: Packages,
    platform: str,
    mirrors: MirrorsConfig,
    listed: Mapping[str, bytes] = _NO_FILES,
    below: Iterable[str] = (),
) -> dict[str, str]:
    """Return the SHA-256, in hexadecimal, of each file that pip may install, by its address.

    An image may have one of several Pythons, so these are the files of all of them. ``listed`` has the files of
    requirements in a source, by their paths in it. ``below`` has the addresses of the parent's files that stay locked.

    Raises:
        NotLockable: the requirements have no solution, an index requires a login, or a package has no file with a
            SHA-256.
        SlipwayError: an index does not respond.
    """
    resolved: dict[str, str] = {}
    kept = _kept(below)
    for python in packages.pythons:
        there = _resolved(packages.onto, python, platform, mirrors, listed, kept)["packages"] if packages.onto else []
        pins = [f"{package['name']}=={package['version']}" for package in there]
        of_python = _resolved(packages, python, platform, mirrors, listed, pins)
        known = {package["name"] for package in there}
        more = [package for package in of_python["packages"] if package["name"] not in known]
        resolved |= _files({"packages": more}, packages)
    return resolved


def _kept(addresses: Iterable[str]) -> list[str]:
    """Return constraints to the versions of locked wheels; of several, for other Pythons, to what lies between."""
    constraints = []
    wheels = (address for address in addresses if address.endswith(".whl"))
    for name, listed in pip_packages.versions(wheels).items():
        known = sorted(listed.split(", "), key=order)
        constraints.append(f"{name}=={known[0]}" if len(known) == 1 else f"{name}>={known[0]},<={known[-1]}")
    return constraints


def _resolved(
    asked: Packages,
    python: str,
    platform: str,
    mirrors: MirrorsConfig,
    listed: Mapping[str, bytes],
    pins: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what uv resolves for one Python, as a lock of PEP 751; ``pins`` are constraints besides."""
    packages = _with_parents(asked)
    default, *more = lock.python_indexes(packages, mirrors)
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        lists = {
            "requirements.in": packages.requirements,
            "constraints.txt": (*packages.constraints, *pins),
            "overrides.txt": packages.overrides,
            "uv.toml": [f'[[dependency-metadata]]\nname = "{name}"\nrequires-dist = []' for name in packages.sdists],
        }
        for file, lines in lists.items():
            (folder / file).write_text("".join(f"{line}\n" for line in lines))
        for path, content in listed.items():
            (folder / "listed" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "listed" / path).write_bytes(content)
        words = [uv.find_uv_bin(), "pip", "compile", "--quiet", "--config-file=uv.toml", "--no-progress"]
        words += ["--color=never", "--system-certs", "--only-binary=:all:"]
        words += [f"--no-binary={name}" for name in packages.sdists]
        words += ["--python", sys.executable, "--python-version", python]
        words += ["--python-platform", _target(platform, packages.glibc or _GLIBC), "--default-index", default]
        words += [word for index in more for word in ("--index", index)]
        words += [word for name in packages.built for word in ("--no-emit-package", name)]
        words += ["--constraint", "constraints.txt", "--overrides", "overrides.txt", "--output-file", "pylock.toml"]
        words += ["requirements.in", *(f"listed/{path}" for path in [*listed][:1])]
        status, errors = _run(words, folder)
        if status:
            where = f"Python {python} on {platform}"
            raise _failure(asked, packages, where, (default, *more), status, errors)
        return tomllib.loads((folder / "pylock.toml").read_text(encoding="utf-8"))


def _run(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run uv; return its status and its errors."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=child_environment("uv.lock"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        _programs.add(program)
        try:
            _, errors = program.communicate(timeout=NETWORK_SECONDS)
        finally:
            program.kill()  # which does nothing after its end
            _programs.discard(program)
    return program.returncode, errors


def end_programs() -> None:
    """End what :func:`files` waits for in other threads."""
    for program in [*_programs]:
        program.kill()


def _failure(
    asked: Packages, packages: Packages, where: str, urls: Sequence[str], status: int, text: str
) -> SlipwayError:
    """Return uv's failure as an error for the user. ``packages`` are the asked ones with those of the image."""
    reason = " ".join(re.sub(r"[^\x20-\x7e]", " ", text).split()).removeprefix(_NO_SOLUTION)
    refused, failed = _REFUSED.search(reason), _FAILED.search(reason)
    at_fault = refused["index"] if refused else failed[1] if failed else ""
    of_torch = any(at_fault.startswith(url) for url in urls[1:])
    key = f"slipway:mirrors.{'torchIndex' if of_torch else 'pythonIndex'}"
    there = ", ".join([url for url in urls if at_fault.startswith(url)] or urls)
    indexes = f"uv finds no packages on {there}"
    absent = _ABSENT.search(reason)
    requirements = one_line(" ".join((asked if asked.onto else packages).requirements))
    if broken := _BROKEN.search(reason):
        return SlipwayError(
            f"{requirements}: {where}: the file of {broken[1]} on {there} is broken, or was cut off: "
            f"{one_line(reason, 300)}; try again, or let slipway:mirrors.pythonIndex name another"
        )
    wheelless = _NO_WHEEL.search(reason)
    # of a package with other versions, those are what does not go with the rest
    if wheelless and not re.search(rf" {re.escape(wheelless[1])}[<>=]\S+ depends? on", reason):
        return NotLockable(
            f"{requirements}: {where}: the index has no wheel of {wheelless[1]} for it: {one_line(reason, 300)} Take "
            "another version, or install it in a Dockerfile of your own"
        )
    if asked.onto and status == _UNRESOLVED and not absent:
        return NotLockable(
            f"{one_line(' '.join(asked.requirements))}: {where}: nothing that the image has is replaced, and "
            f"what is asked for does not go with it or with itself: {one_line(reason, _LONGEST_CHAIN)} Ask for "
            "other versions, or leave one out"
        )
    if status == _UNRESOLVED:
        if refused:
            return NotLockable(
                f"{requirements}: {where}: the index {refused['index']} answers {refused['answer']}: "
                f"{one_line(reason, 300)}; see that it is the right one and takes this machine's login, or let {key} "
                "name another"
            )
        empty = _EMPTY.search(reason)
        first = f"correct {absent[1]}" if absent else "ask for other versions"
        if empty:
            first = f"look at {urls[0]}/{empty[1]}/, which lists no file: a proxy may answer with a page to sign in"
        advice = f"{first}, or let slipway:mirrors.pythonIndex name an index that has it"
        return NotLockable(f"{requirements}: {where}: {indexes}: {one_line(reason, 300)} To mend it, {advice}")
    causes = reason.split(" cause: ")
    why = one_line(": ".join(dict.fromkeys((causes[0], causes[-1]))), 300)
    see = (
        "let this machine trust its certificate, or name it in SSL_CERT_FILE"
        if "certificate" in why
        else "see that it is up and reached from here"
    )
    advice = f"{see}, or let {key} name another"
    return SlipwayError(f"{requirements}: {where}: {indexes}: {why}; {advice}")


def _with_parents(packages: Packages) -> Packages:
    """Return an image's packages with those that its parent has."""
    if packages.onto is None:
        return packages
    below = _with_parents(packages.onto)
    return below.with_more(*packages.requirements)


def _target(platform: str, glibc: str) -> str:
    """Return a platform as uv names it, with its newest known C library that is no newer."""
    known = max((known for known in _MANYLINUX if order(known) <= order(glibc)), key=order)
    return f"{_MACHINES[architecture(platform)]}-manylinux_{known.replace('.', '_')}"


def _files(resolved: Mapping[str, Any], packages: Packages) -> Iterator[tuple[str, str]]:
    """Yield the address and SHA-256 of each wheel, and of the source distributions that count.

    Raises NotLockable: a package has no such file with a SHA-256.
    """
    for package in resolved["packages"]:
        sources = [package["sdist"]] if package["name"] in packages.sdists and "sdist" in package else []
        files = [*package.get("wheels", []), *sources]
        hashed = {file["url"]: file["hashes"]["sha256"] for file in files if "sha256" in file.get("hashes", {})}
        for address in hashed:
            if not lock.is_address(address):
                raise NotLockable(
                    f"{one_line(' '.join(packages.requirements))}: {one_line(package['name'])}: the index names "
                    f"'{one_line(address)}', but a file in the lock has an address of http or https without a login; "
                    "take another index"
                )
        if not hashed:
            release = one_line(f"{package['name']} {package.get('version', '')}")
            raise NotLockable(
                f"{one_line(' '.join(packages.requirements))}: {release}: the index has no wheel of it with a SHA-256; "
                "take another version, or another index"
            )
        yield from hashed.items()
