"""A newer release for a repository of one's own: what it would build anew, and the pin.

The newer release says itself what it builds: it is the program of the user's choice. It runs as it would after the
upgrade, from a folder that is removed. The two answers are compared as data. Nothing else changes before all is known.
"""

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

from containers.child_environment import child_environment
from containers.errors import one_line
from stacks.differences import causes, first_ones
from stacks.places import PIN, UPGRADE
from toolchain import json_answer
from toolchain.checkout import Checkout
from toolchain.machine import pip
from toolchain.machine.files import temporary, write
from toolchain.machine.locking import alone
from toolchain.machine.steps import output, say
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import python_env
from toolchain.release import own_repository, own_workflows, release_archive
from toolchain.version import numbers

COMMITS: Final = "stacks/commits.txt"
"""As :mod:`stacks.identity.kept_commits` reads it."""
LOCK: Final = "stacks/lock.toml"
"""As :mod:`stacks.lock` reads it."""
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){1,2}")
_ADDRESS: Final = re.compile(r"https?://\S+\.whl([?#]\S*)?")
"""A wheel's: pip would run code of a source archive or a clone to learn what it is."""
_SECONDS: Final = 900
"""How long a release may take to say what it builds."""
_RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from cli.main import run; run()"
"""Runs the command of the release in a folder, whatever release the environment is for."""

Contents = Mapping[str, Mapping[str, Any]]
"""By stack: ``images`` and what is ``unlocked``, or why it is ``refused``, as `slipway list --contents` has it."""


@dataclass(frozen=True)
class ReleaseWheel:
    """A release as a wheel: its version, where it is from as a requirement, its SHA-256, and the archive in it."""

    version: str
    source: str
    digest: str
    archive: bytes
    folder: str

    @classmethod
    def read(cls, file: Path, address: str = "", *, local: bool = False) -> "ReleaseWheel":
        """Read a wheel. Raises ToolchainError: it is not one of Slipway."""
        content = file.read_bytes()
        try:
            with zipfile.ZipFile(file) as members:
                archive = members.read(f"slipway/{release_archive.NAME}")
                (name,) = (each for each in members.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
                version = str(message_from_bytes(members.read(name))["Version"])
        except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RuntimeError):
            raise ToolchainError(
                f"upgrade: {file.name} is not a wheel of Slipway, which has the file slipway/{release_archive.NAME}: "
                "name the address or the file of a release's wheel"
            ) from None
        if not _VERSION.fullmatch(version) or not file.name.startswith(f"slipway-{version}-"):
            raise ToolchainError(
                f"upgrade: {file.name} has the version {version[:40]}: pip installs a release by the name "
                "slipway-X.Y.Z-py3-none-any.whl"
            )
        source = f"slipway @ {own_repository.without_login(address)}" if address else f"slipway=={version}"
        return cls(version, source, hashlib.sha256(content).hexdigest(), archive, str(file.parent) if local else "")


def upgrade(checkout: Checkout, release: str, *, writing: bool, as_json: bool = False) -> int:
    """Say which images a newer release would build anew, and why; with ``writing``, pin it then, and note kept commits.

    ``release`` is a wheel's file or address, or where the repository pins an address, the version of the release beside
    that one. No index is asked for the name ``slipway``: on PyPI it is another project's, whose code would run.

    Raises ToolchainError: it is not a newer release of Slipway, or cannot say what it builds, or the repository has
    uncommitted changes and is to be written to.
    """
    if checkout.code == checkout.root:
        raise ToolchainError("upgrade: this is a checkout of Slipway: `git pull` brings a newer one")
    pinned = own_repository.pinned(checkout)
    if writing and (changed := _changed(checkout)):
        raise ToolchainError(f"upgrade: {changed} is not committed: commit it, or put it aside with `git stash -u`")
    with alone(checkout, "upgrade"), tempfile.TemporaryDirectory(prefix="slipway-") as scratch:
        wheel = _wheel(checkout, release, Path(scratch))
        running = own_repository.version()
        if wheel.digest == pinned:
            raise ToolchainError(f"upgrade: {PIN} pins this release already, Slipway {running}")
        if numbers(wheel.version) <= numbers(running):
            raise ToolchainError(
                f"upgrade: Slipway {wheel.version} is not newer than {running}, which {PIN} pins; to go back, "
                "`git revert` the commit of the upgrade"
            )
        before = _contents(checkout, [checkout.venv / "bin" / "slipway"], running)
        with _unpacked(checkout, wheel) as words:
            after = _contents(checkout, words, wheel.version)
            workflows = own_workflows.newer(checkout.root, checkout.root / UPGRADE)
        if refusals := [f"{stack}: {line}" for stack, each in after.items() for line in each.get("refused", ())]:
            raise ToolchainError(f"upgrade: Slipway {wheel.version} refuses {'; '.join(refusals)}; nothing was changed")
        stacks = _moved(before, after)
        say(f"Slipway {running} -> {wheel.version}")
        for line in (*_lines(stacks), *workflows.lines()):
            say(line)
        lock = _unlocked(checkout, before, after)
        if lock:
            say(f"{LOCK} lacks what Slipway {wheel.version} fetches: run `{lock}` with it")
        if writing:
            own_workflows.replace(checkout.root, workflows)  # first: without the pin, the upgrade goes on
            _write(checkout, wheel, _kept(checkout, before, after), lock)
        else:
            say("Nothing was changed: `--write` pins the release")
        if as_json:
            json_answer.give({"from": running, "to": wheel.version, "stacks": stacks, "lock": lock, "written": writing})
    return 0


def _changed(checkout: Checkout) -> str:
    """Return the first uncommitted file of the repository; empty if there is none, or no git.

    What an upgrade writes before the pin does not count: one that was killed there goes on. It replaces no edited file.
    """
    whole = (Path(COMMITS), *own_workflows.copied())
    written = [f":(exclude){path}" for path in (*whole, *map(temporary, whole), temporary(Path(PIN)))]
    status = own_repository.git(checkout.root, "status", "--porcelain", "-z", "--", ".", *written) or ""
    return status.split("\0")[0][3:]


def _wheel(checkout: Checkout, release: str, scratch: Path) -> ReleaseWheel:
    if release.endswith(".whl") and "://" not in release:
        file = Path(release)
        if not file.is_file():
            raise ToolchainError(f"upgrade: there is no file {file}: name a wheel of Slipway")
        return ReleaseWheel.read(file, local=True)
    beside = own_repository.address(checkout, release)
    address = release if _ADDRESS.fullmatch(release) else beside if _VERSION.fullmatch(release) else ""
    if not address:
        wrong = f"{one_line(release, 80)!r} is no release: " if release else ""
        version = ", or a version, such as 0.2.0" if beside else f"; {PIN} pins no address, beside which a version is"
        raise ToolchainError(
            f"upgrade: {wrong}name a wheel's file or address, such as ./slipway-0.2.0-py3-none-any.whl{version}"
        )
    try:
        pip.download(checkout.venv / "bin" / "python", address, scratch, checkout.logs / "upgrade.log")
    except ToolchainError as error:
        raise ToolchainError(f"upgrade: pip gets no {address}: {error}") from None
    (file,) = scratch.iterdir()
    return ReleaseWheel.read(file, address)


@contextmanager
def _unpacked(checkout: Checkout, wheel: ReleaseWheel) -> Iterator[list[str | Path]]:
    """Yield the command of a release, which is removed at the end."""
    code = checkout.root / UPGRADE
    shutil.rmtree(code, ignore_errors=True)
    try:
        release_archive.unpack(wheel.archive, code)
        # Mostly it needs the packages that are here.
        same = (code / "requirements.lock").read_bytes() == checkout.lock.read_bytes()
        environment = checkout.venv if same else Path(python_env.get(Checkout(code)).used)
        yield [environment / "bin" / "python", "-B", "-c", _RUN, code]
    finally:
        shutil.rmtree(code, ignore_errors=True)


def _contents(checkout: Checkout, command: list[str | Path], version: str) -> Contents:
    """Return what a release builds of the repository. Raises ToolchainError: it does not say."""
    text = _output(checkout, command, "list", "--contents", version=version)
    contents: Contents = json.loads(text)
    return contents


def _output(checkout: Checkout, command: list[str | Path], *words: str, version: str) -> str:
    environment = child_environment("toolchain.release")
    try:
        return output([*command, *words], cwd=checkout.root, env=environment, timeout=_SECONDS)
    except ToolchainError as error:
        raise ToolchainError(f"upgrade: Slipway {version} cannot say what it builds: {error}") from None


def _moved(before: Contents, after: Contents) -> dict[str, Any]:
    """Return, for each stack, the images to build anew, the images to go and the images to stay."""
    stacks = {}
    for stack, each in after.items():
        then, now = before.get(stack, {}).get("images", {}), each["images"]
        moved: dict[str, list[str]] = {}
        for name, image in now.items():
            if name not in then:
                moved[name] = ["new"]
            elif image["fingerprint"] != then[name]["fingerprint"]:
                parents = [f"parent {parent}" for parent in image["siblings"] if parent in moved]
                moved[name] = [*parents, *causes(then[name]["facts"], image["facts"])]
        gone, kept = [name for name in then if name not in now], [name for name in now if name not in moved]
        stacks[stack] = {"anew": moved, "gone": gone, "kept": kept}
    return stacks


def _lines(stacks: Mapping[str, Any]) -> Iterator[str]:
    """Yield each stack with the images that are built anew, and why."""
    for stack, images in stacks.items():
        texts = {name: first_ones(reasons) for name, reasons in images["anew"].items()}
        texts |= dict.fromkeys(images["gone"], "no longer built")
        width = max(map(len, texts), default=0)
        kept = f"{len(images['kept'])} images keep their tags" if len(images["kept"]) > 1 else "its image keeps its tag"
        yield stack if texts else f"{stack}: as before, {kept}"
        yield from (f"  {name:<{width}}  {text}" for name, text in texts.items())


def _kept(checkout: Checkout, before: Contents, after: Contents) -> str:
    """Return the lines of :data:`COMMITS` for the images that a release builds as before."""
    lines = []
    for stack, each in after.items():
        then, now = before.get(stack, {}).get("images"), each["images"]
        if then is None:
            continue
        moved = {image["published"] for name, image in {**then, **now}.items() if _key(then, name) != _key(now, name)}
        shown = _output(checkout, [checkout.venv / "bin" / "slipway"], "show", stack, "--json", version="that runs")
        lines += [
            f"{stack} {name} {image['fingerprint']} {image['commit']} {image['suffix']} {image['repository']}\n"
            for name, image in json.loads(shown)["published"].items()
            if name not in moved and image["commit"]
        ]
    return "".join(lines)


def _key(images: Mapping[str, Any], name: str) -> str | None:
    return images[name]["fingerprint"] if name in images else None


def _unlocked(checkout: Checkout, before: Contents, after: Contents) -> str:
    """Return the command that locks new downloads of a release; empty if there is no lock, or it lacks none."""
    if not (checkout.root / LOCK).exists():
        return ""
    stacks = [
        stack
        for stack, each in after.items()
        if {*each.get("unlocked", ())} - {*before.get(stack, {}).get("unlocked", ())}
    ]
    return f"slipway lock {' '.join(stacks)}" if stacks else ""


def _write(checkout: Checkout, wheel: ReleaseWheel, commits: str, lock: str) -> None:
    if commits or (checkout.root / COMMITS).exists():
        write(checkout.root / COMMITS, commits)  # first: before the pin moves, it says what is so anyway
    own_repository.pin(checkout, f"{wheel.source} --hash=sha256:{wheel.digest}")
    say(f"{PIN} pins Slipway {wheel.version}. Next:")
    source = f" --no-index --find-links {wheel.folder}" if wheel.folder else ""
    say(f"  {own_repository.pip()} install --require-hashes -r {PIN}{source}")
    command = own_repository.command()
    say(f"  {command} check")
    if lock:
        say(f"  {lock}")
    say(f"  git add --all, and commit{f': {COMMITS} keeps the tags' if commits else ''}")
