"""A Pulumi program in a throwaway folder: Slipway itself, or the bare one that stands beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.measure import Run, run
from stacks.config.stack_file import ROOT

PROGRAMS: Final = Path(__file__).with_name("programs")
_STACK: Final = "bench"
_PULUMI_YAML: Final = """name: bare
runtime: {name: python, options: {virtualenv: .slipway/venv}}
"""


class Program:
    """A program's folder, with a stack and a git history of one commit, and Pulumi on it.

    It shares nothing with the user's stacks: the state lies in a folder beside it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dockerfiles = folder / "dockerfiles"
        self._state = folder.with_name(f"{folder.name}-state")
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "GIT_"))},
            "PULUMI_BACKEND_URL": self._state.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "bench",
        }
        self.environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)

    def begin(self) -> None:
        """Make the stack and commit the folder as it stands."""
        self._state.mkdir()
        environment = self.folder / ".slipway"
        environment.mkdir()
        (environment / "venv").symlink_to(ROOT / ".slipway" / "venv")
        shutil.copy(ROOT / ".gitignore", self.folder)
        self._pulumi("stack", "init", _STACK)
        self.commit()

    def commit(self) -> None:
        """Make a repository of the folder, with one commit: the folder as it stands."""
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.git(*identity, "commit", "--quiet", "--message", "As measured")

    def preview(self, *, watch: bool = False) -> Run:
        """Run ``pulumi preview``."""
        return self._pulumi("preview", "--stack", _STACK, watch=watch)

    def up(self, *, watch: bool = False) -> Run:
        """Run ``pulumi up`` as ``make up`` does: with no preview before it."""
        return self._pulumi("up", "--stack", _STACK, "--yes", "--skip-preview", watch=watch)

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        outputs: dict[str, Any] = json.loads(self._pulumi("stack", "output", "--stack", _STACK, "--json").output)
        return outputs

    def _pulumi(self, *words: str, watch: bool = False) -> Run:
        return run(["pulumi", *words, "--non-interactive"], cwd=self.folder, env=self.environment, watch=watch)

    def git(self, *words: str, given: str | None = None) -> None:
        """Run git in the folder, with ``given`` as its input."""
        subprocess.run(["git", *words], cwd=self.folder, env=self.environment, input=given, text=True, check=True)


def slipway(folder: Path, registry: str, config: Mapping[str, Any]) -> Program:
    """Lay a copy of Slipway, with the flavor ``many`` and its images still to be written, into a folder.

    ``registry`` is host and path; ``config`` are the stack's other keys, without their prefix.
    """
    program = Program(folder)
    for name in ("stacks", "oci", "cli", "components", "dockerfiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml"))
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, folder)
    shutil.copy(PROGRAMS / "many.py", folder / "stacks" / "flavors")
    configure(program, registry, config)
    return program


def configure(program: Program, registry: str, config: Mapping[str, Any]) -> None:
    """Write the configuration of Slipway's stack anew."""
    address, _, path = registry.partition("/")
    keys = {"registry": {"kind": "local", "address": address, "path": path}, **config}
    file = program.folder / "stacks" / f"Pulumi.{_STACK}.yaml"
    kept = [line for line in file.read_text().splitlines() if "encryptionsalt" in line] if file.exists() else []
    lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
    file.write_text("\n".join(["config:", *lines, *kept]) + "\n")


def bare(folder: Path, registry: str, images: Mapping[str, Mapping[str, str]]) -> Program:
    """Lay the bare program into a folder; ``images`` are the build arguments of each image."""
    program = Program(folder)
    program.dockerfiles.mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(_PULUMI_YAML)
    shutil.copy(PROGRAMS / "bare.py", folder / "__main__.py")
    ask(program, registry, images)
    return program


def ask(program: Program, registry: str, images: Mapping[str, Mapping[str, str]]) -> None:
    """Tell the bare program which images to build, and with which arguments."""
    asked = {"repository": registry, "images": images}
    (program.folder / "images.json").write_text(json.dumps(asked, indent=2) + "\n")
