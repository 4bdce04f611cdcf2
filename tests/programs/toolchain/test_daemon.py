"""Services that the toolchain starts, and ends: by their own pid, and none that is not theirs."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.toolchain import test_daemon as daemons
from tests.unit.toolchain.test_daemon import WAITS
from toolchain.machine.daemon import Daemon

daemon = daemons.daemon


def test_process_of_another_with_the_same_pid_is_left_alone(daemon: Daemon) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.DEVNULL) as other:
        daemon.pid_file.parent.mkdir()
        daemon.pid_file.write_text(str(other.pid))
        assert daemon.stop() is False
        assert other.poll() is None
        assert not daemon.pid_file.exists()
        other.kill()
