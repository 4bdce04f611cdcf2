"""Released wheels, built of this checkout's files with edits, and a repository that one of them makes in an empty home."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.toolchain.clone import ROOT
from toolchain.release.release_archive import FILES, FOLDERS, LOCK

VERSION = "0.1.0"
"""The version of the checkout."""


def build(folder: Path, version: str = VERSION, edits: Mapping[str, tuple[str, str]] | None = None) -> Path:
    """Build a wheel of the checkout, by pip; ``edits`` are a pattern and what to put in its place, by file."""
    source = folder / f"source-{version}"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*FILES, LOCK, "README.md"):
        shutil.copy(ROOT / name, source)
    for path, (pattern, replacement) in {"pyproject.toml": (VERSION, version), **(edits or {})}.items():
        text = (source / path).read_text()
        changed = re.sub(pattern, lambda _, new=replacement: new, text, count=1)  # type: ignore[misc]
        assert changed != text or version == VERSION, path
        (source / path).write_text(changed)
    options = ["--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=300)
    shutil.rmtree(source)
    return folder / f"slipway-{version}-py3-none-any.whl"


@dataclass(frozen=True)
class Team:
    """A repository of one's own, beside the environment that has the released wheel."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "team"

    def run(
        self, *words: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program, as a user's terminal in an empty home would."""
        identity = {f"GIT_{role}_{key}": "t" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "SLIPWAY_"))}
        environment = {**inherited, **identity, "HOME": str(self.folder / "home"), **(variables or {})}
        return subprocess.run(
            words, cwd=cwd or self.root, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    def slipway(self, *words: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
        """Run the command, which succeeds; return what it prints."""
        done = self.run(str(self.folder / "slipway/bin/slipway"), *words, cwd=cwd, variables=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *words: str, variables: Mapping[str, str] | None = None) -> str:
        """Run the command, which fails; return its one line."""
        done = self.run(str(self.folder / "slipway/bin/slipway"), *words, variables=variables)
        assert done.returncode == 1, done.stdout + done.stderr
        (line,) = done.stderr.splitlines()
        return line

    def install(self, *words: str, cwd: Path | None = None) -> None:
        """Install with the environment's pip."""
        done = self.run(str(self.folder / "slipway/bin/pip"), "install", *words, cwd=cwd or self.folder)
        assert done.returncode == 0, done.stderr

    def commit(self) -> None:
        """Commit everything."""
        for words in (("add", "--all"), ("commit", "--quiet", "--message", "Change")):
            assert self.run("git", *words).returncode == 0

    def changes(self) -> str:
        """Return what git says is not committed."""
        return self.run("git", "status", "--porcelain").stdout

    def tags(self, stack: str = "local") -> dict[str, str]:
        """Return the tags of the images of a stack."""
        lines = self.slipway("show", stack).splitlines()
        return dict(line.split() for line in lines if not line.startswith(" "))


def make(folder: Path) -> Team:
    """Install the checkout's release, make a repository with it, and commit that."""
    wheel = build(folder)
    team = Team(folder)
    assert team.run(sys.executable, "-m", "venv", "slipway", cwd=folder).returncode == 0
    team.install(f"./{wheel.name}")
    assert "a repository with Slipway" in team.slipway("init", "team", cwd=folder)
    team.commit()
    return team
