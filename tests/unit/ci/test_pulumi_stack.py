"""What a job has Pulumi do with a stack, with a stand-in for Pulumi."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ci.pulumi_stack import Stack
from tests.helpers.every import every
from toolchain.checkout import Checkout


def stack(folder: Path, script: str) -> Stack:
    """Return a stack whose Pulumi is a script."""
    pulumi = folder / "bin/pulumi"
    pulumi.parent.mkdir()
    pulumi.write_text(f"#!/bin/sh\n{script}\n")
    pulumi.chmod(0o755)
    variables = {"PATH": f"{pulumi.parent}:{os.environ['PATH']}"}
    return Stack(Checkout(folder), "t", folder / "Pulumi.t.yaml", variables)


def test_preview_that_fails_returns_its_status_and_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    failing = stack(tmp_path, 'echo "$@"; echo refused >&2; exit 3')
    status, output = failing.preview(["torch"])
    assert status == 3
    assert output.startswith(
        f"preview --stack t --config-file {tmp_path}/Pulumi.t.yaml --color never --target **::torch"
    )
    assert output.endswith("refused\n")


@every(
    "updates, commit",
    [
        ([], None),
        ([{"kind": "update", "environment": {"git.head": "c1"}}], "c1"),
        ([{"kind": "refresh", "environment": {"git.head": "c2"}}, {"kind": "update", "environment": None}], None),
        ([{"kind": "destroy", "environment": {}}, {"kind": "update", "environment": {"git.head": "c1"}}], "c1"),
    ],
)
def test_commit_of_history_is_the_last_updates(
    updates: list[dict[str, Any]], commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "history").write_text(json.dumps(updates))
    assert stack(tmp_path, f"cat '{tmp_path}/history'").commit() == commit
