"""A stack with a separate state, built and pushed by `pulumi up`, and its outputs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from stacks.config.stack_file import ROOT, read_stack
from tests.helpers import pulumi_cli


class Published:
    """One of the stacks of `stacks/`, configured by its file and a test's additions.

    `folder` holds its state and its configuration; a new folder gets a new stack. `program` is the folder of the program.
    """

    def __init__(self, folder: Path, stack: str, program: Path = ROOT, **more: Any) -> None:
        self.folder, self.stack, self.program, self.more = folder, stack, program, more
        self.environment = pulumi_cli.environment(folder)
        self.config = folder / f"Pulumi.{stack}.yaml"
        if not self.config.exists():
            (folder / "Pulumi.yaml").write_text("name: slipway\nruntime: python\n")
            self.config.write_text("config: {}\n")
            self.pulumi("-C", str(folder), "stack", "init", "--no-select", stack)
        self.configure()

    def configure(self, **more: Any) -> None:
        """Change the stack's configuration; Pulumi's salt stays."""
        self.more.update(more)
        salt = [line for line in self.config.read_text().splitlines() if line.startswith("encryptionsalt")]
        keys = {**read_stack(self.stack), **self.more}
        lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
        self.config.write_text("\n".join(["config:", *lines, *salt]) + "\n")

    def copy(self, folder: Path, program: Path = ROOT) -> Published:
        """Return a copy of the stack in its present state."""
        return Published(shutil.copytree(self.folder, folder), self.stack, program, **self.more)

    def pulumi(self, *arguments: str, **environment: str) -> str:
        """Run Pulumi, which must succeed, and return what it printed."""
        done = subprocess.run(
            ["pulumi", "--non-interactive", *arguments],
            cwd=self.program,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return pulumi_cli.plain(done.stdout)

    def built(self) -> list[str]:
        """Return the names under which the engine has the stack's images and their checks."""
        return pulumi_cli.image_names(self.pulumi("stack", "export", "-s", self.stack))

    def up(self, *options: str, **environment: str) -> str:
        """Run `pulumi up` and return what it printed."""
        flags = ["--yes", "--skip-preview", "--config-file", str(self.config), *options]
        return self.pulumi("up", "-s", self.stack, *flags, **environment)

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        outputs: dict[str, Any] = json.loads(self.pulumi("stack", "output", "-s", self.stack, "--json"))
        return outputs

    def refs(self) -> dict[str, str]:
        """Return the references of images and products in the registry, by name."""
        outputs = self.outputs()
        return {name: image["ref"] for kind in ("products", "images") for name, image in outputs.get(kind, {}).items()}
