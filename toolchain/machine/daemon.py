"""Services that we start, and end: by their own pid, and only if that pid still is the service."""

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolchain.machine.steps import last_line
from toolchain.machine.toolchain_error import ToolchainError

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Daemon:
    """One service of this checkout.

    `mark` is a word of its command line that no other process has (a path inside this checkout): together with the pid
    it tells the service from a process that was given the same pid later, after a reboot for instance.
    `reason` returns why a service did not start, given its log.
    """

    name: str
    pid_file: Path
    log: Path
    mark: str
    reason: Callable[[str], str] = last_line

    def pid(self) -> int | None:
        """Return the pid of the running service, None if it does not run."""
        try:
            pid = int(self.pid_file.read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        return pid if os.fsencode(self.mark) in words else None

    def start(
        self, argv: Sequence[str | Path], ready: Callable[[], bool], *, env: Mapping[str, str], seconds: float
    ) -> None:
        """Start the service, detached from this terminal, and wait until `ready`.

        The process writes its pid itself before it becomes the service, so that it never runs unnoticed. Raises
        ToolchainError with the service's last words if it ends, or is not ready in time.
        """
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.unlink(missing_ok=True)
        script = f"echo $$ > {shlex.quote(str(self.pid_file))} && exec {shlex.join(str(word) for word in argv)}"
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
                cwd="/",
            )
        until = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None:
                raise ToolchainError(f"{self.name} ended as soon as it was started: {self._words()}")
            if time.monotonic() > until:
                self.stop(seconds=5)
                raise ToolchainError(f"{self.name} was not ready within {seconds:.0f} s: {self._words()}")
            time.sleep(POLL_SECONDS)

    def _words(self) -> str:
        return f"{self.reason(self.log.read_text(errors='replace'))}; all output is in {self.log}"

    def stop(self, seconds: float = 30.0) -> bool:
        """End the service and wait for it; after `seconds` it is killed. Returns whether it ran."""
        pid = self.pid()
        if pid is None:
            self.pid_file.unlink(missing_ok=True)
            return False
        # Its ports are open until it is over, and its command line is gone before.
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            self.pid_file.unlink(missing_ok=True)
            return True
        try:
            over = select.poll()
            over.register(process, select.POLLIN)
            _signal(_target(pid), signal.SIGTERM)
            while not over.poll(seconds * 1000):
                _signal(_target(pid), signal.SIGKILL)
                _signal(pid, signal.SIGKILL)
        finally:
            os.close(process)
        self.pid_file.unlink(missing_ok=True)
        return True


def _target(pid: int) -> int:
    """Return the process to end: a wrapper such as unshare forwards no signal, so its one child."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return pid
    return int(children[0]) if len(children) == 1 else pid


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise ToolchainError(f"process {pid} was started by another user: run this as that user") from None
