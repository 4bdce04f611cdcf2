"""The proxy command by which ssh reaches a builder: it starts the machine, admits the key, and opens a session.

Every connection so finds the machine running. Run as
``python -m components.runners.ec2.builder.ssh_proxy REGION NAME FOLDER``.
If AWS refuses, ``FOLDER/refused`` has the reason, because a shared connection has no standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from components.runners.ec2.builder.builder_instance import BuilderInstance
from components.runners.ec2.builder.ssh_config import REFUSED, SECONDS, USER
from containers.child_environment import child_environment
from containers.errors import SlipwayError, one_line

_REFUSED = "An error occurred ("
"""How an error of AWS's API begins in its CLI. Any other error is of an open session."""

_UNCONNECTED = "TargetNotConnected"
"""Session Manager's error for a machine whose agent has not connected yet."""


def connect(machine: BuilderInstance, key: Path, end: float) -> None:
    """Connect standard input and output with the machine's ssh server until either ends.

    Raises:
        SlipwayError: AWS refuses.
        ConnectionError: the session broke.
    """
    while True:
        instance = machine.start(end)
        reason = machine.admit(instance, USER, key)
        if not reason:
            reason = _session(machine.region, instance)
            if not reason:
                return
            if _REFUSED not in reason:
                raise ConnectionError(reason)
            if _UNCONNECTED not in reason:
                end = 0
        if time.monotonic() > end:
            raise SlipwayError(f"{machine.name} ({instance}): {reason}")
        time.sleep(3)


def _session(region: str, instance: str) -> str:
    """Run a session; return its error, or an empty text if it succeeded."""
    command = ["aws", "ssm", "start-session", "--region", region, "--target", instance]
    document = ["--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22"]
    process = subprocess.Popen(
        [*command, *document], stderr=subprocess.PIPE, text=True, start_new_session=True, env=child_environment("aws")
    )

    def end(_number: int, _frame: FrameType | None) -> None:
        os.killpg(process.pid, signal.SIGTERM)
        sys.exit(1)

    for number in (signal.SIGHUP, signal.SIGTERM):  # ssh ends its proxy with the first
        signal.signal(number, end)
    _, error = process.communicate()
    if process.returncode == 0:
        return ""
    return one_line(error.strip() or f"aws ssm start-session: exit status {process.returncode}", 400)


def main(region: str, name: str, folder: str) -> int:
    """Connect to the builder; return the exit status."""
    refused = Path(folder, REFUSED)
    refused.unlink(missing_ok=True)
    try:
        connect(BuilderInstance(region, name), Path(folder, "key"), time.monotonic() + SECONDS)
    except SlipwayError as error:
        refused.write_text(f"{error}\n", encoding="utf-8")
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
