"""The command `slipway` of a wheel: where it finds a repository, and what it says where it cannot go on."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
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


class Wheel:
    """An installed wheel, whose release says how it was called, and from where."""

    def __init__(self, folder: Path) -> None:
        self.installed, self.temporary = folder / "installed", folder / "temporary"
        for each in (self.installed, self.temporary):
            each.mkdir()
        shutil.copy(launcher.__file__, self.installed)
        self.release("1")

    def release(self, version: str) -> None:
        verb = f"def main(words):\n    print({version!r}, *words, __file__)\n    return 4\n"
        with tarfile.open(self.installed / "release.tar.gz", "w:gz") as tar:
            for name, text in {"toolchain/__init__.py": "", "toolchain/verbs.py": verb}.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))

    def run(self, folder: Path, *words: str) -> list[str]:
        """Run the command in a folder; return what it prints, in words."""
        command = [sys.executable, "-c", "import launcher, sys; sys.exit(launcher.main())", *words]
        environment = {"PYTHONPATH": str(self.installed), "TMPDIR": str(self.temporary)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (4, "")
        assert not [*self.temporary.iterdir()]
        return done.stdout.split()


def test_init_runs_the_release_and_leaves_nothing(tmp_path: Path) -> None:
    *words, code = Wheel(tmp_path).run(tmp_path, "init", "team")
    assert words == ["1", "init", "team"]
    assert not Path(code).exists()


def test_repository_has_the_release_of_the_wheel(tmp_path: Path) -> None:
    """It is unpacked once, and replaced by that of another wheel."""
    wheel, release = Wheel(tmp_path), tmp_path / "team/.slipway/release"
    (tmp_path / "team").mkdir()
    (tmp_path / "team/Pulumi.yaml").write_text("name: slipway\n")
    for version in ("1", "2"):
        wheel.release(version)
        assert wheel.run(tmp_path / "team", "up") == [version, "packages", str(release / "toolchain/verbs.py")]
        (release / "mark").touch()
        wheel.run(tmp_path / "team", "up")
        assert (release / "mark").exists()
    assert [each.name for each in release.parent.iterdir()] == ["release"]


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
