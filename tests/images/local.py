"""The `local` stack with a state of its own, built and pushed by `pulumi up`: the real image of the image tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from stacks.source import ROOT
from tests import pulumi_cli


class Local:
    """The stack, with a state of its own, and what it exported."""

    def __init__(self, folder: Path) -> None:
        self.environment = pulumi_cli.environment(folder)
        self.config = folder / "Pulumi.local.yaml"
        shutil.copy(ROOT / "stacks/Pulumi.local.yaml", self.config)
        (folder / "Pulumi.yaml").write_text("name: slipway\nruntime: python\n")
        self.pulumi("-C", str(folder), "stack", "init", "--no-select", "local")
        self.up()

    def pulumi(self, *arguments: str) -> str:
        done = subprocess.run(
            ["pulumi", "--non-interactive", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return pulumi_cli.plain(done.stdout)

    def up(self) -> str:
        return self.pulumi("up", "-s", "local", "--yes", "--skip-preview", "--config-file", str(self.config))

    def outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = json.loads(self.pulumi("stack", "output", "-s", "local", "--json"))
        return outputs

    @property
    def ref(self) -> str:
        ref: str = self.outputs()["images"]["torch"]["ref"]
        return ref
