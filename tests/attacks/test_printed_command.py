"""A folder's name is a part of commands that `slipway` prints for a shell: whoever pastes them runs docker alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cli.export import bake, self_contained
from stacks import plan
from stacks.config.stack_file import ROOT


@pytest.mark.parametrize("name", ["$(touch pwned)", "a; touch pwned", "`touch pwned`", "a' 'b", "a\nb"])
def test_printed_build_of_a_hostile_folder_is_one_command(tmp_path: Path, name: str) -> None:
    planned = plan.make("local")
    (tmp_path / "docker").write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$@" >> "$0.log"\n')
    (tmp_path / "docker").chmod(0o755)
    last = [image.spec.name for image in planned.images][-1]
    commands = [
        *bake.write(planned, tmp_path / f"bake {name}", ROOT, force=False),
        *self_contained.write(planned, last, tmp_path / f"file {name}", ROOT, force=False),
    ]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh"], input="\n".join(commands), text=True, check=True, cwd=tmp_path, env=environment)
    assert not (tmp_path / "pwned").exists()
    words = (tmp_path / "docker.log").read_text().split("\0")
    assert {f"{tmp_path}/bake {name}", f"{tmp_path}/file {name}"} <= {*words}
