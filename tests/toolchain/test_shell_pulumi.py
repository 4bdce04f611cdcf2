"""The `pulumi` of `.slipway/env`, where another checkout's is on PATH as well."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.toolchain.clone import ROOT


def test_pulumi_of_two_checkouts_starts_the_program_once(tmp_path: Path) -> None:
    """As in a checkout that is made in a shell which has sourced another's `.slipway/env`."""
    place = "toolchain/pulumi_run/shell"
    for checkout in ("one", "two"):
        shutil.copytree(ROOT / place, tmp_path / checkout / place)
    program = tmp_path / "bin/pulumi"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "started $*"\n')
    program.chmod(0o755)
    path = os.pathsep.join(str(tmp_path / each) for each in (f"one/{place}", f"two/{place}", "bin"))
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    done = subprocess.run(
        ["pulumi", "stack", "ls"], env=environment, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "started stack ls\n"
