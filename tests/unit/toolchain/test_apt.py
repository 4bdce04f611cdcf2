"""Debian's packages: what `apt-get install` would get, and where backports come from."""

from __future__ import annotations

import platform
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.machine.toolchain_error import ToolchainError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for stand-ins of apt's programs, on a machine of a German."""
    monkeypatch.setattr(apt, "_update", lambda _checkout: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    return tmp_path


def install(programs: Path, name: str, text: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{text}\n")
    (programs / name).chmod(0o755)


POLICY = """case $LANGUAGE in C) word=Candidate ;; *) word=Installationskandidat ;; esac
printf 'qemu-user-static:\\n  Installed: (none)\\n  %s: {version}\\n' "$word\""""


@pytest.mark.parametrize(
    ("version", "numbers"), [("1:7.2+dfsg-7+deb12u18+b3", (7, 2)), ("10.0.13+ds-0", (10, 0, 13)), ("(none)", ())]
)
def test_candidate_is_read_in_any_language(programs: Path, version: str, numbers: tuple[int, ...]) -> None:
    install(programs, "apt-cache", POLICY.format(version=version))
    assert apt.candidate(Checkout(programs), "qemu-user-static") == numbers


def test_other_suites_come_from_the_archive_in_use(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": "bookworm"})
    targets = [
        "Docker bookworm http://docker/debian/",
        "Debian bookworm-updates http://a/",
        "Debian bookworm http://b/",
    ]
    install(programs, "apt-get", "printf '%s\\n' " + " ".join(f"'{target}'" for target in targets))
    assert apt._archive() == "http://b/"


def test_system_other_than_debian_has_no_backports(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": "noble"})
    install(programs, "apt-get", "echo 'Ubuntu noble http://archive.ubuntu.com/ubuntu/'")
    with pytest.raises(ToolchainError, match="^qemu-user-static: only Debian has noble-backports$"):
        apt.install_backport(Checkout(programs), "qemu-user-static")


def test_program_of_a_package_is_taken_out_of_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where apt's own user cannot write the download, apt fetches it as root, and only warns."""
    install(programs, "apt-get", '[ "$(stat -c %a .)" = 755 ] && touch "$3_1_amd64.deb"')
    install(programs, "dpkg-deb", '[ -e "$2" ] && mkdir -p "$3/usr/bin" && echo "$1" > "$3/usr/bin/tool"')
    checkout = Checkout(programs)
    apt.unpack(checkout, "tools", "usr/bin/tool", programs / "new/bin/tool")
    assert (programs / "new/bin/tool").read_text() == "-x\n"
    assert [*checkout.cache.iterdir()] == []
    monkeypatch.setattr(apt, "_suite", lambda *_: nullcontext([]))
    apt.unpack_release(checkout, "trixie", ["tools"], programs / "of/trixie")
    assert (programs / "of/trixie/usr/bin/tool").read_text() == "-x\n"


def test_installations_of_two_parts_take_turns(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "is_root", lambda: True)
    # Only one at a time can make the folder, as apt's lock.
    install(programs, "apt-get", f"mkdir {programs}/lock && sleep 0.2 && rmdir {programs}/lock")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda package: apt.install(Checkout(programs), package), ["docker.io", "python3-venv"]))
