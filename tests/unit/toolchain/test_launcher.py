"""The command `slipway` of a wheel: where it finds a repository, and what it says where it cannot go on."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from toolchain.release import launcher


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose folder `a` is the working directory, and the release that is to run there."""
    archive = tmp_path / "release.tar.gz"
    archive.write_bytes(b"the release")
    monkeypatch.setattr(launcher, "ARCHIVE", archive)
    folder = tmp_path / "team"
    (folder / "a").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: slipway\n")
    monkeypatch.chdir(folder / "a")
    return folder


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command; return its status, and what it prints to either output."""
    monkeypatch.setattr(sys, "argv", ["slipway", *words])
    status = launcher.main()
    return (status, *capsys.readouterr())


def test_command_outside_of_a_repository_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: slipway-of-others\n")
    for words in ((), ("-h",), ("--help",)):
        status, out, err = ended(monkeypatch, capsys, *words)
        assert (status, out.splitlines()[0].split()[:3], err) == (0, ["usage:", "slipway", "init"], "")
    monkeypatch.setattr(metadata, "version", lambda name: f"{name}'s")
    assert ended(monkeypatch, capsys, "--version") == (0, "slipway slipway's\n", "")
    status, out, err = ended(monkeypatch, capsys, "up", "--help")
    assert (status, out) == (1, "")
    assert err == (
        f"slipway: {tmp_path} is in no folder with a Pulumi.yaml of Slipway: `slipway init FOLDER` makes one, where "
        "commands run\n"
    )


def test_ctrl_c_before_the_release_runs_is_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_root: Path) -> Path:
        raise KeyboardInterrupt

    assert Path.cwd().parent == repository
    monkeypatch.setattr(launcher, "_unpacked", interrupted)
    assert ended(monkeypatch, capsys, "check") == (130, "", "slipway: interrupted\n")


def test_command_goes_on_as_that_of_the_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the packages first. Where that fails, its status is the command's."""
    ran: list[object] = []

    def packages(code: Path, words: list[str]) -> int:
        ran.append((code, words))
        return 3 if len(ran) == 1 else 0

    def unpack(archive: bytes, folder: Path) -> None:
        folder.mkdir()
        (folder / "archive").write_bytes(archive)

    monkeypatch.setattr(launcher, "_run", packages)
    monkeypatch.setattr(launcher, "_unpack", unpack)
    monkeypatch.setattr(os, "execv", lambda program, words: ran.append((program, words)))
    release, program = repository / ".slipway/release", repository / ".slipway/venv/bin/slipway"
    assert ended(monkeypatch, capsys, "up", "local") == (3, "", "")
    assert (release / "archive").read_bytes() == b"the release"
    ended(monkeypatch, capsys, "up", "local")
    packaged = (release, ["packages"])
    assert ran == [packaged, packaged, (program, [str(program), "up", "local"])]


def test_command_of_the_repositorys_own_environment_stops(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(repository / ".slipway/venv"))
    status, out, err = ended(monkeypatch, capsys, "check")
    assert (status, out) == (1, "")
    assert err.startswith(
        f"slipway: {repository}/.slipway/venv has a wheel of Slipway, and is for what that needs alone"
    )
    assert err.count("\n") == 1


def test_environment_that_is_a_link_to_itself_is_replaced(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / ".slipway").mkdir()
    (repository / ".slipway/venv").symlink_to("venv")
    monkeypatch.setattr(launcher, "_unpacked", lambda root: root)
    monkeypatch.setattr(launcher, "_run", lambda *_: 3)  # the toolchain does it
    assert ended(monkeypatch, capsys, "check") == (3, "", "")


def test_repository_that_cannot_be_written_is_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / ".slipway").write_text("a file")
    line = f"slipway: {repository}/.slipway/release/archive.sha256: Not a directory\n"
    assert ended(monkeypatch, capsys, "check") == (1, "", line)


def test_older_python_is_told_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    monkeypatch.setattr(sys, "version", "3.10.14 (main)")
    line = "slipway: Python 3.10.14 is too old: 3.11 or newer is needed\n"
    assert ended(monkeypatch, capsys, "check") == (1, "", line)
    assert not (repository / ".slipway").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give files to others")
@pytest.mark.parametrize(
    ("owner", "here", "found"), [(0, 0, True), (1001, 1002, True), (1002, 1002, True), (1003, 1002, False)]
)
def test_repository_is_of_root_oneself_or_the_folders_owner(
    owner: int, here: int, found: bool, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(repository / "Pulumi.yaml", owner, owner)
    os.chown(repository / "a", here, here)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert launcher._repository() == (repository if found else None)
