"""Where everything lives: one checkout, and the git-ignored `.slipway/` inside it that holds all state."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stacks.places import CODE, ROOT
from toolchain.machine.toolchain_error import ToolchainError

SOCKET_PATH_BYTES: Final = 104
"""Longest path of a unix socket that containerd takes, whatever the kernel allows (sys/socket_unix.go)."""
UP: Final = "`make up`" if ROOT == CODE else "`slipway up`"
STARTING: Final = f"{UP} or `make ready`" if ROOT == CODE else UP
"""The commands that get what is missing, as messages name them: a repository of one's own has no Makefile."""
LOCKING: Final = (
    "`make lock` adds it where there is a network"
    if ROOT == CODE
    else "this release of Slipway lacks it; see `slipway upgrade`"
)
"""What to do where a file of Slipway's own lacks a pin."""
LONGEST_SOCKET: Final = "docker/containerd/containerd.sock.ttrpc"
"""The longest socket name that the engine makes below the folder it is given."""


@dataclass(frozen=True)
class Checkout:
    """A repository that uses Slipway: a checkout of it, or one of a team's own.

    `root` is absolute, without symlinks.
    """

    root: Path

    @classmethod
    def here(cls) -> "Checkout":
        """Return the repository that this file's code runs for."""
        return cls(ROOT)

    @property
    def code(self) -> Path:
        """The folder of Slipway's code."""
        return CODE if self.root == ROOT else self.root

    @property
    def state(self) -> Path:
        """All that Slipway writes on this machine, apart from system packages."""
        return self.root / ".slipway"

    @property
    def venv(self) -> Path:
        """The Python environment."""
        return self.state / "venv"

    @property
    def bin(self) -> Path:
        """Pulumi's programs, when they are ours."""
        return self.state / "bin"

    @property
    def pulumi_home(self) -> Path:
        """Pulumi's own folder (plugins, workspaces), instead of the user's `~/.pulumi`."""
        return self.state / "pulumi"

    @property
    def backend(self) -> Path:
        """The folder that Pulumi's file backend keeps stacks in."""
        return self.state / "state"

    @property
    def passphrase(self) -> Path:
        """The file with the passphrase that protects secrets in the stacks' state."""
        return self.state / "passphrase"

    @property
    def config(self) -> Path:
        """Stack configuration as Pulumi reads and rewrites it; the tracked YAML stays as it is."""
        return self.state / "config"

    @property
    def logs(self) -> Path:
        """Output of long commands and of the services."""
        return self.state / "logs"

    @property
    def cache(self) -> Path:
        """What may be deleted at any time."""
        return self.state / "cache"

    @property
    def env_file(self) -> Path:
        """A POSIX shell file to source: the environment that everything runs in."""
        return self.state / "env"

    @property
    def lock(self) -> Path:
        """The hashed list of Python packages."""
        return self.code / "requirements.lock"

    @property
    def id(self) -> str:
        """Eight hex digits that identify this checkout's services on the machine."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]

    @property
    def run(self) -> Path:
        """The engine's sockets and pid. In the checkout, or below `/run` if the path would be too long for a socket.

        Only root starts an engine, so that only root writes there.
        """
        inside = self.state / "run"
        if len(os.fsencode(inside / LONGEST_SOCKET)) <= SOCKET_PATH_BYTES:
            return inside
        return Path("/run") / f"slipway-{self.id}"

    def lock_text(self) -> str:
        """Return the text of requirements.lock. Raises ToolchainError where it is missing."""
        try:
            return self.lock.read_text()
        except FileNotFoundError:
            raise ToolchainError(f"{self.lock} is missing: restore it with `git checkout requirements.lock`") from None

    def locked(self, package: str) -> str:
        """Return the version that requirements.lock pins for a package. Raises ToolchainError where it pins none."""
        match = re.search(rf"^{re.escape(package)}==([^\s;\\]+)", self.lock_text(), re.MULTILINE)
        if not match:
            raise ToolchainError(f"{self.lock} does not pin {package}: {LOCKING}")
        return match[1]
