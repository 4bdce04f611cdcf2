"""A repository of one's own: its stacks and images, and the release of Slipway that it pins. None of Slipway's code."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from containers.child_environment import child_environment
from stacks.places import CHECKED, CODE, PIN, ROOT
from toolchain.checkout import Checkout
from toolchain.machine.files import temporary, write
from toolchain.machine.network.net import netloc
from toolchain.machine.steps import say
from toolchain.machine.toolchain_error import ToolchainError

TEMPLATE: Final = Path(__file__).with_name("template")
_GIT_SECONDS: Final = 60
KEPT: Final = (".git", "README.md", "LICENSE")
"""What a folder may have before: a host of repositories puts it there."""
_PIN: Final = re.compile(
    r"^slipway\s*(==|@)\s*(?P<release>\S+)(\s*\\\n)?\s+--hash=sha256:(?P<hash>[0-9a-f]{64})\s*$", re.MULTILINE
)

_FROM_FOLDER: Final = "--no-index --find-links <the folder with the wheel>"
"""pip's options where no address is pinned. An index has other projects by this name."""


def _installed() -> tuple[str, str, str]:
    """Return the wheel that runs: its version, its address or nothing for a file, and its SHA-256 or nothing.

    The address has no login and no query, which may be one: it is written to a file that everybody reads.

    Raises ToolchainError: no wheel runs.
    """
    try:
        wheel = metadata.distribution("slipway")
    except metadata.PackageNotFoundError:
        raise ToolchainError(
            "init: this is a checkout of Slipway, which nobody can pin: build a wheel with `pip wheel --no-deps .`, "
            "install it in an environment, and run its `slipway init`"
        ) from None
    origin = json.loads(wheel.read_text("direct_url.json") or "{}")
    address = without_login(origin.get("url", ""))
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not address.startswith("file:"):
        return wheel.version, address, digest
    file = Path(unquote(urlsplit(address).path))
    if not digest and file.is_file():  # pip has recorded it since its release 23.1
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return wheel.version, "", digest


def without_login(address: str) -> str:
    """Return an address without what may be a secret in it: login, query and fragment."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, netloc(address), parts.path, "", ""))


def _target(folder: Path) -> Path:
    """Return the folder, if a repository can be made there."""
    target = Path(os.path.abspath(folder))  # noqa: PTH100 - a link stays as it is named
    if target.exists() and not target.is_dir():
        raise ToolchainError(f"init: {target} is a file: name a new folder")
    there = sorted(entry.name for entry in target.iterdir() if entry.name not in KEPT) if target.exists() else []
    if there and not _begun(target):
        raise ToolchainError(f"init: {target} has {', '.join(there[:5])} already: name a new folder, or an empty one")
    existing = next(parent for parent in (target, *target.parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ToolchainError(f"init: {existing} cannot be written to: name a folder of yours")
    return target


def _template() -> dict[Path, str]:
    """Return the files of a new repository, by their paths in it, but for the pin."""
    files = {path.relative_to(TEMPLATE): path.read_text() for path in TEMPLATE.rglob("*") if path.is_file()}
    return {path.with_name(path.name.replace("gitignore", ".gitignore")): text for path, text in files.items()}


def _begun(target: Path) -> bool:
    """Return whether a folder has nothing but files of an interrupted `init`; the pin is the last of it."""
    ours = _template()
    partial = {temporary(path) for path in (*ours, Path(PIN))}
    folders = {folder for path in ours for folder in path.parents}

    def is_ours(path: Path) -> bool:
        name = path.relative_to(target)
        if name.parts[0] in KEPT:
            return True
        if path.is_symlink() or path.is_dir():
            return name in folders and not path.is_symlink()
        return name in partial or (name in ours and path.read_bytes() == ours[name].encode())

    return all(map(is_ours, target.rglob("*")))  # up to the first of others': it may be a folder of a million files


def git(target: Path, *words: str) -> str | None:
    """Run git in the folder; return what it prints, None if it is not there or fails."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "-C", str(target), *words],
        env=child_environment("git"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=_GIT_SECONDS,
    )
    return done.stdout if done.returncode == 0 else None


def make(folder: Path) -> int:
    """Make a repository in a new or an empty folder, as a git repository where there is git.

    Raises ToolchainError: the folder has something, or cannot be written to, or it is unknown which wheel runs.
    """
    version, address, digest = _installed()
    if not digest:
        raise ToolchainError(
            "init: pip has not recorded the hash of the wheel that it installed: install Slipway from the wheel's "
            f"file, such as `pip install ./{wheel(version)}`, or with pip 23.1 or newer"
        )
    target = _target(folder)
    for path, text in _template().items():
        write(target / path, text)
    steps = (("rev-parse", "--is-inside-work-tree"), ("init", "--quiet", "--initial-branch=main"))
    tracked = any(git(target, *words) is not None for words in steps)
    source = f"slipway @ {address}" if address else f"slipway=={version}"
    options = "" if address else f" {_FROM_FOLDER}"
    write(
        target / PIN,
        "# The release of Slipway that this repository uses, which has a lock of all else that it needs:\n"
        f"# pip install --require-hashes -r {PIN}{options}\n"
        f"{source} --hash=sha256:{digest}\n",
    )
    program = "slipway" if shutil.which("slipway") == command() else command()
    say(f"{target}: a repository with Slipway {version}. In it:")
    say(f"  {program} check     look for mistakes in its stacks")
    say(f"  {program} lock      pin what builds fetch; later, it builds all of it anew once")
    say(f"  {program} preview   say what would be built")
    say(f"  {program} up        build and publish the images of stacks/Pulumi.local.yaml")
    if not tracked:
        say("git is missing or refuses: without it, tags name no commit; `git init` there when you have it")
    return 0


def wheel(version: str) -> str:
    """Return the name of a release's wheel, which pip requires."""
    return f"slipway-{version}-py3-none-any.whl"


def version() -> str:
    """Return the version of the code that runs."""
    return str(tomllib.loads((CODE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _pin(checkout: Checkout) -> re.Match[str]:
    """Return the line that pins the release. Raises ToolchainError: there is none."""
    file = checkout.root / PIN
    match = _PIN.search(file.read_text()) if file.exists() else None
    if match is None:
        raise ToolchainError(f"{file} pins no release of Slipway: write `slipway=={version()} --hash=sha256:...` in it")
    return match


def pinned(checkout: Checkout) -> str:
    """Return the SHA-256 of the wheel that the repository pins. Raises ToolchainError: it pins none."""
    return _pin(checkout)["hash"]


def address(checkout: Checkout, other: str) -> str:
    """Return the address of another version beside that of the pinned release; empty if no address is pinned."""
    release = _pin(checkout)["release"]
    return re.sub(r"[^/]+/[^/]+$", lambda end: end[0].replace(version(), other), release) if "/" in release else ""


def pin(checkout: Checkout, requirement: str) -> None:
    """Write another requirement in place of the pinned one. All else in the file stays.

    Raises ToolchainError: none is pinned.
    """
    match = _pin(checkout)
    write(checkout.root / PIN, f"{match.string[: match.start()]}{requirement}\n{match.string[match.end() :].lstrip()}")


def check_pin(checkout: Checkout) -> None:
    """Refuse to run where the repository pins another release than runs: it would build other images.

    To be called by the wheel's command. The command of the release finds what was checked in ``CHECKED``.

    Raises ToolchainError: so, or nothing is pinned.
    """
    installed, _, digest = _installed()
    match = _pin(checkout)
    release = match["release"]
    expected, running = (match["hash"], digest) if digest else (release, installed)
    if expected != running and (digest or f"/slipway-{installed}-" not in release):  # which an address has
        named = "/" in release or re.search("^--find-links", match.string, re.MULTILINE)
        source = "" if named else f" {_FROM_FOLDER}"
        raise ToolchainError(
            f"{checkout.root / PIN} pins Slipway {release} with the hash {match['hash'][:12]}, and {installed} with "
            f"{digest[:12] or 'an unknown one'} runs: "
            f"`{sys.executable} -m pip install --require-hashes -r {PIN}{source}`"
        )
    if CODE != ROOT:
        write(CODE / CHECKED, f"{match['hash']}\n{sys.executable} -m pip\n")


def pip() -> str:
    """Return the pip of the environment that has the wheel, as a command. Another one may be first on PATH."""
    file = CODE / CHECKED
    return file.read_text(encoding="utf-8").splitlines()[1] if file.exists() else "pip"


def command() -> str:
    """Return the `slipway` of that environment: the one on PATH may be of the release before, until this one ran."""
    python, found, _ = pip().partition(" -m pip")
    return str(Path(python).with_name("slipway")) if found else "slipway"
