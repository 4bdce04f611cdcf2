"""The `pulumi` of `.slipway/env`, where another checkout's is on PATH as well."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.toolchain.clone import ROOT

PLACE = "toolchain/pulumi_run/shell"


@pytest.mark.parametrize("compressed", ["false", "true"])
def test_pulumi_creates_a_stack_that_was_removed(tmp_path: Path, compressed: str) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.one.yaml").write_text("config: {}\n")
    (tmp_path / "Pulumi.yaml").write_text("name: slipway\nruntime: python\nstackConfigDir: stacks\n")
    (tmp_path / ".slipway/state").mkdir(parents=True)
    environment = {
        **os.environ,
        "PULUMI_HOME": str(tmp_path / ".slipway/pulumi"),
        "PULUMI_BACKEND_URL": (tmp_path / ".slipway/state").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_DIY_BACKEND_GZIP": compressed,
        "PATH": f"{ROOT / PLACE}{os.pathsep}{os.environ['PATH']}",
    }
    for words in ("select one", "select one", "rm one --yes --preserve-config", "select one"):
        done = subprocess.run(
            ["pulumi", "stack", *words.split()],
            env=environment,
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"


def test_pulumi_of_two_checkouts_starts_the_program_once(tmp_path: Path) -> None:
    """As in a checkout that is made in a shell which has sourced another's `.slipway/env`."""
    for checkout in ("one", "two"):
        shutil.copytree(ROOT / PLACE, tmp_path / checkout / PLACE)
    program = tmp_path / "bin/pulumi"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "started $*"\n')
    program.chmod(0o755)
    path = os.pathsep.join(str(tmp_path / each) for each in (f"one/{PLACE}", f"two/{PLACE}", "bin"))
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    done = subprocess.run(
        ["pulumi", "stack", "ls"], env=environment, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "started stack ls\n"
