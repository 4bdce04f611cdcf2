"""What `make up` and `make preview` print of the events of Pulumi's engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stacks.config.stack_file import ROOT


@pytest.mark.parametrize(("errors", "told"), [(None, "begun\nline 0\nline 1\nfailed\n"), (subprocess.STDOUT, "")])
def test_update_goes_on_where_nobody_reads_what_it_prints(
    errors: int | None, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after `slipway up | head`, and `slipway up 2>&1 | head`: what follows, and how it ends, is not lost."""
    program = (
        "from toolchain.machine import steps; from toolchain.pulumi_run.run_progress import RunProgress\n"
        "input(); steps.say('begun')\n"
        "with RunProgress() as progress:\n"
        "    for number in range(2): progress.say(f'line {number}')\n"
        "steps.say('failed'); raise SystemExit(1)"
    )
    reader, writer = os.pipe()
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writer, stderr=errors, cwd=ROOT) as run:
        os.close(writer)
        os.close(reader)
        run.communicate(b"\n")
    assert (run.returncode, capfd.readouterr().err) == (1, told)
