"""QEMU's emulation of another processor: what is registered, and what is said where that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine, emulation
from toolchain.parts.part import Part, remember

ARM = "linux/arm64"
FORMAT = r":qemu-aarch64:M::\x7f\x45\x4c\x46:\xff\xff\xff\xff:/usr/libexec/qemu-binfmt/aarch64-binfmt-P:OP" + "\n"
"""A line as Debian's qemu-user-static 7.2 has it in usr/lib/binfmt.d/qemu-aarch64.conf, with a shorter magic number."""
STATE = "{state}\ninterpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P\nflags: {flags}\noffset 0\nmagic 7f454c46\n"


class Machine:
    """A machine of linux/amd64: root, with binfmt_misc mounted and the package installed, but nothing registered."""

    def __init__(self, folder: Path) -> None:
        self.checkout = Checkout(folder)
        self.binfmt = folder / "binfmt_misc"
        self.formats = folder / "binfmt.d"
        self.root = True
        self.installed: list[str] = []
        self.backported: list[str] = []
        self.candidate: tuple[int, ...] = (10, 0, 13)
        self.archive = True
        self.hosts: set[str] = set()
        self.binfmt.mkdir()
        self.formats.mkdir()
        (self.binfmt / "register").touch()
        self.install()

    def install(self, *packages: str) -> None:
        self.installed += packages
        (self.formats / "qemu-aarch64.conf").write_text(FORMAT)

    def backport(self, package: str) -> None:
        if not self.archive:
            raise ToolchainError(f"{package}: only Debian has backports")
        self.backported.append(package)
        (self.formats / "qemu-aarch64.conf").write_text(FORMAT)

    def handler(self, state: str = "enabled", flags: str = "POF") -> None:
        (self.binfmt / "qemu-aarch64").write_text(STATE.format(state=state, flags=flags))

    @property
    def registered(self) -> str:
        register = self.binfmt / "register"
        return register.read_text() if register.is_file() else ""

    def runnable(self, host: str, *, among: Sequence[str]) -> dict[str, str]:
        self.hosts.add(host)
        handler = self.binfmt / "qemu-aarch64"
        state = handler.read_text() if handler.exists() else ""
        emulated = self.registered.endswith("F") or (state.startswith("enabled") and "F\n" in state)
        ways = {"linux/amd64": "native", **({ARM: "emulated"} if emulated else {})}
        return {platform: way for platform, way in ways.items() if platform in among}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(emulation, "BINFMT", machine.binfmt)
    monkeypatch.setattr(emulation, "FORMATS", machine.formats)
    monkeypatch.setattr(emulation, "runnable_platforms", machine.runnable)
    monkeypatch.setattr(apt, "is_root", lambda: machine.root)
    monkeypatch.setattr(apt, "available", lambda: True)
    monkeypatch.setattr(apt, "candidate", lambda _checkout, _package: machine.candidate)
    monkeypatch.setattr(apt, "install", lambda _checkout, *packages: machine.install(*packages))
    monkeypatch.setattr(apt, "install_backport", lambda _checkout, package: machine.backport(package))
    return machine


def refusal(machine: Machine) -> str:
    with pytest.raises(ToolchainError) as refused:
        emulation.get(machine.checkout, ARM)
    return str(refused.value)


def test_emulation_is_registered_with_flag_f(machine: Machine) -> None:
    part = emulation.get(machine.checkout, ARM)
    assert (part.name, part.version, part.why) == ("emulation of linux/arm64", "emulated", emulation.SLOW)
    assert machine.registered == FORMAT.strip() + "F"
    assert machine.installed == []


def test_emulation_without_its_package_installs_that(machine: Machine) -> None:
    (machine.formats / "qemu-aarch64.conf").unlink()
    emulation.get(machine.checkout, ARM)
    assert machine.installed == ["qemu-user-static"]
    assert machine.registered.endswith("F")


def test_emulation_of_debian_12_installs_the_backport(machine: Machine) -> None:
    (machine.formats / "qemu-aarch64.conf").unlink()
    machine.candidate = (7, 2)
    emulation.get(machine.checkout, ARM)
    assert (machine.installed, machine.backported) == ([], ["qemu-user-static"])
    assert machine.registered.endswith("F")


def test_emulation_without_a_backport_takes_what_there_is(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (machine.formats / "qemu-aarch64.conf").unlink()
    machine.candidate = (8, 2, 2)
    machine.archive = False
    emulation.get(machine.checkout, ARM)
    assert (machine.installed, machine.backported) == (["qemu-user-static"], [])
    assert capsys.readouterr().out == (
        "torch for arm64 may crash under QEMU 8.2.2, which this distribution has: qemu-user-static: only Debian has "
        "backports\n"
    )


def test_emulation_that_the_package_registers_is_not_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.formats / "qemu-aarch64.conf").unlink()

    def install(_checkout: Checkout, *packages: str) -> None:
        machine.install(*packages)
        machine.handler()

    monkeypatch.setattr(apt, "install", install)
    emulation.get(machine.checkout, ARM)
    assert machine.registered == ""


def test_platform_that_runs_already_installs_nothing(machine: Machine) -> None:
    machine.root = False
    machine.handler()
    assert emulation.get(machine.checkout, ARM).version == "emulated"
    assert emulation.get(machine.checkout, "linux/amd64").why == ""
    assert (machine.installed, machine.registered) == ([], "")


def test_emulation_asks_the_engine_in_use(machine: Machine) -> None:
    remember(machine.checkout, Part(docker_engine.NAME, "x", "y", env={"DOCKER_HOST": "unix:///here"}))
    emulation.find(machine.checkout, ARM)
    assert machine.hosts == {"unix:///here"}


def test_emulation_without_root_says_what_to_do(machine: Machine) -> None:
    machine.root = False
    handler = machine.binfmt / "qemu-aarch64"
    prefix = "the Docker engine cannot run linux/arm64: "
    advice = "as root, `make up` of a stack for linux/arm64 installs qemu-user-static and registers it"
    assert refusal(machine) == f"{prefix}{handler} is not there: {advice}"
    (machine.binfmt / "register").unlink()
    assert refusal(machine) == f"{prefix}{machine.binfmt} is not mounted: {advice}"


@pytest.mark.parametrize(
    ("state", "flags", "problem"),
    [
        ("disabled", "POF", "is disabled: `echo 1 > {handler}` as root"),
        ("enabled", "PO", "lacks flag F, so containers do not find QEMU: `echo -1 > {handler}` as root, and try again"),
    ],
)
def test_handler_of_no_use_is_left_to_its_owner(machine: Machine, state: str, flags: str, problem: str) -> None:
    machine.handler(state, flags)
    handler = machine.binfmt / "qemu-aarch64"
    assert refusal(machine) == f"the Docker engine cannot run linux/arm64: {handler} {problem.format(handler=handler)}"
    assert machine.registered == ""


def test_kernel_without_binfmt_misc_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.binfmt / "register").unlink()

    def command(argv: Sequence[Any], *_: Any, **__: Any) -> None:
        raise ToolchainError(f"{argv[0]}: unknown filesystem type 'binfmt_misc'.")

    monkeypatch.setattr(emulation, "command", command)
    assert refusal(machine) == (
        "binfmt_misc cannot be mounted, so this kernel runs no other processor's programs (mount: unknown filesystem "
        "type 'binfmt_misc'.): use a Docker engine on a machine of the platform"
    )
    assert machine.installed == []


def test_engine_elsewhere_is_left_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://builder")
    assert refusal(machine) == (
        "the Docker engine cannot run linux/arm64: it is on another machine: use one of linux/arm64, or register QEMU "
        "there as docs/guides/emulation.md says"
    )
    assert machine.registered == ""


@pytest.mark.parametrize("text", ["", "# a comment\n"])
def test_package_without_the_handler_is_one_line(machine: Machine, text: str) -> None:
    (machine.formats / "qemu-aarch64.conf").write_text(text)
    assert refusal(machine).endswith("qemu-aarch64.conf of qemu-user-static has no handler for linux/arm64")


def test_register_that_refuses_is_one_line(machine: Machine) -> None:
    (machine.binfmt / "register").unlink()
    (machine.binfmt / "register").mkdir()
    assert refusal(machine).endswith("qemu-aarch64.conf: Is a directory")


def test_doctor_says_how_each_platform_is_run(machine: Machine) -> None:
    first, second = emulation.described(machine.checkout).values()
    assert first == "native"
    assert second.startswith(f"cannot be run: {machine.binfmt / 'qemu-aarch64'} is not there: as root, ")
    machine.handler()
    assert emulation.described(machine.checkout)["linux/arm64"] == f"emulated ({emulation.SLOW})"


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)", ""),
        ("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", "; torch may crash under QEMU 7.2.22: see docs/guides/emulation.md"),
    ],
)
def test_doctor_names_a_qemu_that_is_too_old(machine: Machine, version: str, advice: str) -> None:
    program = machine.checkout.root / "qemu-aarch64-static"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo 'qemu-aarch64 version {version}'\n")
    program.chmod(0o755)
    link = machine.checkout.root / "aarch64-binfmt-P"  # QEMU takes its options by another name only
    link.symlink_to(program)
    machine.handler()
    handler = machine.binfmt / "qemu-aarch64"
    handler.write_text(handler.read_text().replace("/usr/libexec/qemu-binfmt/aarch64-binfmt-P", str(link)))
    assert emulation.described(machine.checkout)["linux/arm64"] == f"emulated ({emulation.SLOW}{advice})"


def test_engine_that_does_not_answer_is_a_toolchain_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise SlipwayError("the Docker engine: `docker version` failed: gone")

    monkeypatch.setattr(emulation, "runnable_platforms", fail)
    assert refusal(machine) == "the Docker engine: `docker version` failed: gone"
