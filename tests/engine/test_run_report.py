"""What `make up` and `make preview` print, on the real engine: few lines, and in them what changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.test_previews import Project
from toolchain.checkout import Checkout
from toolchain.pulumi_run import stack_command


class Runs:
    """`make up` and `make preview` of a stack of which nothing is built."""

    def __init__(self, root: Path, stack: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.project = Project(root, stack)
        self._checkout = Checkout(root)
        self._checkout.backend.mkdir()
        self._checkout.pulumi_home.symlink_to(os.environ["PULUMI_HOME"])
        self._environment = {
            **self.project.environment,
            "PULUMI_BACKEND_URL": self._checkout.backend.as_uri(),
            "PULUMI_HOME": str(self._checkout.pulumi_home),
        }
        self._capsys = capsys

    def lines(self, verb: str) -> list[str]:
        code = getattr(stack_command, verb)(self._checkout, self.project.stack, self._environment)
        output = self._capsys.readouterr().out
        assert code == 0, output
        return output.splitlines()


def test_run_of_local_prints_what_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(tmp_path / "project", "local", capsys)
    runs.lines("up")
    unchanged = runs.lines("up")
    assert len(unchanged) < 15
    assert "Unchanged: torch" in unchanged
    assert sum(line.startswith("torch: 127.0.0.1:") and "@sha256:" in line for line in unchanged) == 1
    assert sum("pulumi-resource-docker" in line for line in unchanged) <= 1
    before = runs.project.plan().images[0]
    runs.project.configure(torch={"version": "2.14.0"})
    (runs.project.root / "dockerfiles/torch/python/setup").open("a").write("# changed\n")
    after = runs.project.plan().images[0]
    preview = runs.lines("preview")
    assert "    ~ args TORCH_VERSION: 2.14.1 -> 2.14.0" in preview
    assert any(line.startswith("    ~ files torch/python/setup: ") for line in preview)
    assert f"    ~ tag: {before.tag} -> {after.tag}" in preview


def test_first_preview_of_nccl_is_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(tmp_path / "project", "nccl-cu121", capsys)
    lines = runs.lines("preview")
    assert len(lines) < 60
    for image in runs.project.plan().images:
        assert [line for line in lines if line.startswith(f"+ {image.spec.name}: {image.tag}")], image.spec.name
