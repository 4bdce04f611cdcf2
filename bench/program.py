"""A Pulumi program in a temporary folder: Slipway itself, or a bare one for comparison."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.measure import MeasuredRun, run
from containers.registry.reference import Reference
from stacks.config.stack_file import ROOT

PROGRAMS: Final = Path(__file__).with_name("programs")
_STACK: Final = "bench"
_PULUMI_YAML: Final = """name: bare
runtime: {name: python, options: {virtualenv: .slipway/venv}}
"""


class Program:
    """A program in a folder with one stack and a git history of one commit.

    Its state is in a separate folder, apart from the user's stacks.
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
        """Create the stack, and commit the folder."""
        self._state.mkdir()
        environment = self.folder / ".slipway"
        environment.mkdir()
        (environment / "venv").symlink_to(ROOT / ".slipway" / "venv")
        shutil.copy(ROOT / ".gitignore", self.folder)
        self._pulumi("stack", "init", _STACK)
        self.commit()

    def commit(self) -> None:
        """Make the folder a repository with one commit of its content."""
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.git(*identity, "commit", "--quiet", "--message", "As measured")

    def preview(self, *, watch: bool = False) -> MeasuredRun:
        """Run ``pulumi preview``."""
        return self._pulumi("preview", "--stack", _STACK, watch=watch)

    def up(self, *, watch: bool = False) -> MeasuredRun:
        """Run ``pulumi up`` without a preview, as ``make up`` does."""
        return self._pulumi("up", "--stack", _STACK, "--yes", "--skip-preview", watch=watch)

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        outputs: dict[str, Any] = json.loads(self._pulumi("stack", "output", "--stack", _STACK, "--json").output)
        return outputs

    def forget(self, kind: str) -> None:
        """Remove the resources of a type, such as ``ImageIndex``, from the state; the next update creates them anew."""
        exported = json.loads(self._pulumi("stack", "export", "--stack", _STACK).output)
        for resource in exported["deployment"]["resources"]:
            if resource["type"].rpartition(":")[2] == kind:
                self._pulumi("state", "delete", resource["urn"], "--stack", _STACK, "--yes")

    def _pulumi(self, *words: str, watch: bool = False) -> MeasuredRun:
        return run(["pulumi", *words, "--non-interactive"], cwd=self.folder, env=self.environment, watch=watch)

    def git(self, *words: str, stdin: str | None = None) -> None:
        """Run git in the folder."""
        subprocess.run(["git", *words], cwd=self.folder, env=self.environment, input=stdin, text=True, check=True)


def slipway(folder: Path, registry: str, config: Mapping[str, Any]) -> Program:
    """Copy Slipway to a folder, with the flavor ``many`` but not yet its images.

    ``registry`` is host and path; ``config`` has the stack's other keys, without their prefix.
    """
    program = Program(folder)
    for name in ("stacks", "containers", "scaler", "cli", "components", "dockerfiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml"))
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, folder)
    shutil.copy(PROGRAMS / "many.py", folder / "stacks" / "flavors")
    configure(program, registry, config)
    return program


def configure(program: Program, registry: str, config: Mapping[str, Any]) -> None:
    """Write the configuration of Slipway's stack, keeping its encryption salt."""
    place = Reference.of(registry)
    keys = {"registry": {"kind": "local", "address": place.host, "path": place.path}, **config}
    file = program.folder / "stacks" / f"Pulumi.{_STACK}.yaml"
    salt = [line for line in file.read_text().splitlines() if "encryptionsalt" in line] if file.exists() else []
    lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
    file.write_text("\n".join(["config:", *lines, *salt]) + "\n")


def bare(folder: Path, registry: str, images: Mapping[str, Mapping[str, str]]) -> Program:
    """Write the bare program to a folder; ``images`` are the build arguments by image."""
    program = Program(folder)
    program.dockerfiles.mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(_PULUMI_YAML)
    shutil.copy(PROGRAMS / "bare.py", folder / "__main__.py")
    configure_bare(program, registry, images)
    return program


def configure_bare(program: Program, registry: str, images: Mapping[str, Mapping[str, str]]) -> None:
    """Write the images of the bare program and their build arguments."""
    config = {"repository": registry, "images": images}
    (program.folder / "images.json").write_text(json.dumps(config, indent=2) + "\n")
