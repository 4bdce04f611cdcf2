"""Programs as their projects release them.

The SHA-256 of each file is pinned in `releases.toml`; no other file is unpacked or run. Files are kept in
`~/.cache/slipway` for all checkouts of a user.
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from containers import user_cache
from toolchain.checkout import LOCKING, Checkout
from toolchain.machine import apt
from toolchain.machine.files import write
from toolchain.machine.network import net
from toolchain.machine.steps import step

MACHINES: Final = {"amd64": "x64", "arm64": "arm64"}
"""The machines that are pinned, by Debian's name: Pulumi's own name of each."""
_HEAD: Final = """\
# SHA-256 of the released files that the toolchain downloads, by program, version and machine. `make lock` writes it: it
# adds what is missing, and replaces no hash of a version. A program that is missing here is never downloaded. Where
# there is its Go module, it is built from that.
"""


@dataclass(frozen=True)
class Release:
    """A released program: the folder of its files and a file's name, with `{version}`, `{machine}` and `{x64}`.

    `mirror` is the variable that names another folder.
    """

    name: str
    folder: str
    file: str
    mirror: str = ""

    def url(self, version: str, machine: str) -> str:
        """Return the address of the file for a machine."""
        folder = os.environ.get(self.mirror) or self.folder.format(version=version)
        return f"{folder.rstrip('/')}/{self.file.format(version=version, machine=machine, x64=MACHINES[machine])}"


def table(checkout: Checkout) -> Path:
    """Return the file with the pinned hashes."""
    return checkout.code / "toolchain" / "releases.toml"


def _pins(checkout: Checkout) -> dict[str, dict[str, dict[str, str]]]:
    """Return the hashes by program, version and machine."""
    try:
        return tomllib.loads(table(checkout).read_text())
    except FileNotFoundError:
        return {}


def fetch(checkout: Checkout, release: Release, version: str, target: Path) -> None:
    """Write the released file for this machine to `target`, from the cache if it is there.

    Raises net.UnavailableError if it is not pinned, cannot be downloaded, or has another hash, and leaves no `target`.
    """
    machine = apt.machine()
    pinned = _pins(checkout).get(release.name, {}).get(version, {}).get(machine)
    if pinned is None:
        raise net.UnavailableError(
            f"{release.name} {version} for {machine} has no hash in toolchain/releases.toml; {LOCKING}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = user_cache.folder() / pinned
    if _copied(kept, target) == pinned:
        return
    url = release.url(version, machine)
    try:
        digest = net.fetch(url, target)
    except net.UnavailableError:
        target.unlink(missing_ok=True)
        raise
    if digest != pinned:
        target.unlink()
        raise net.UnavailableError(f"{url}: SHA-256 is {digest[:12]}..., pinned is {pinned[:12]}...")
    with suppress(OSError):  # a cache that cannot be written costs a download
        user_cache.keep(target.read_bytes(), pinned)


def _copied(kept: Path, target: Path) -> str:
    """Copy a file of the cache, and return the hash of the copy: whatever becomes of the cache then, it is that."""
    try:
        with kept.open("rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except OSError:
        return ""
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack the programs of an archive, all into one folder; links and paths in it are not followed."""
    files = []
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None:
                files.append(folder / Path(member.name).name)
                with content, files[-1].open("wb") as file:
                    shutil.copyfileobj(content, file)
                files[-1].chmod(0o755)
    return files


def pin(checkout: Checkout, wanted: dict[Release, str]) -> int:
    """Add the hashes of the versions of some releases to the table; return how many files could not be had.

    A hash that is there stays, as long as its version is wanted.
    """
    known, missing = _pins(checkout), 0
    table_: dict[str, dict[str, str]] = {}
    for release, version in wanted.items():
        pinned = dict(known.get(release.name, {}).get(version, {}))
        for machine in MACHINES.keys() - pinned:
            checkout.cache.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=checkout.cache) as file:
                try:
                    with step(f"Pinning {release.name} {version} for {machine}"):
                        pinned[machine] = net.fetch(release.url(version, machine), Path(file.name))
                except net.UnavailableError as error:
                    print(f"  not pinned: {error}")
                    missing += 1
        table_[f'{release.name}."{version}"'] = pinned
    rows = [
        f"\n[{name}]\n" + "".join(f'{machine} = "{digest}"\n' for machine, digest in sorted(pinned.items()))
        for name, pinned in sorted(table_.items())
        if pinned
    ]
    write(table(checkout), _HEAD + "".join(rows))
    return missing
