"""The command `slipway` of a wheel: where it finds a repository, and what it says where it cannot go on."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from toolchain.release import launcher


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
