"""Empty checkouts, and the toolchain run on them as a process of its own, as a user's terminal would."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolchain.checkout import Checkout

ROOT = Checkout.here().root

_CALL = """
import json, sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from toolchain import environment
from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.machine.locking import alone
from toolchain.parts.plugins.plugin import REQUIRED

environment.prepare()
checkout = Checkout(Path(sys.argv[1]))
try:
    with alone(checkout, "get"):
        plugins = [plugin for plugin in REQUIRED if plugin.name in sys.argv[3:]]
        part = import_module(f"toolchain.parts.{sys.argv[2]}").get(checkout, *plugins)
except ToolchainError as error:
    sys.exit(f"slipway: {error}")
print(json.dumps(asdict(part)))
"""


@dataclass
class Clone:
    """A checkout with nothing in it but the lock of Python packages, and a machine: a PATH and an environment."""

    root: Path
    programs: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def checkout(self) -> Checkout:
        return Checkout(self.root)

    def program(self, name: str, script: str) -> None:
        """Put a shell script on the clone's PATH, standing in for a program."""
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def _words(self, module: str, *plugins: str) -> tuple[list[str], dict[str, str]]:
        path = f"{self.programs}:/usr/bin:/bin"
        return [sys.executable, "-c", _CALL, str(self.root), module, *plugins], {
            "PYTHONPATH": str(ROOT),
            "PATH": path,
            "XDG_CACHE_HOME": str(self.programs.parent / "cache"),
            **self.env,
        }

    def start(self, module: str, *plugins: str) -> subprocess.Popen[str]:
        """Begin to get a part, or one of the plugins that have no substitute."""
        words, env = self._words(module, *plugins)
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def get(self, module: str, *plugins: str) -> dict[str, Any]:
        """Get a part that can be had; return its note."""
        process = self.start(module, *plugins)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        part: dict[str, Any] = json.loads(out.splitlines()[-1])
        return part

    def refused(self, module: str, *plugins: str) -> str:
        """Try to get a part that is not available; return the error, which is one line."""
        process = self.start(module, *plugins)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 1, err
        assert len(err.splitlines()) == 1, err
        return err.strip()


def make(folder: Path) -> Clone:
    """Make a clone in an empty folder."""
    clone = Clone(folder / "clone", folder / "programs")
    clone.root.mkdir(parents=True)
    clone.programs.mkdir()
    for name in ("requirements.lock", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone.root)
    for package in ("cli", "containers", "stacks"):
        (clone.root / package).mkdir()
        (clone.root / package / "__init__.py").touch()
    return clone


def services_of(root: Path) -> list[str]:
    """Return the command lines of the processes that run for a checkout."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(root / ".slipway") in words:
            commands.append(words.replace(b"\0", b" ").decode())
    return commands
