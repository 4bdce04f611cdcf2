"""A builder's ssh configuration and key, in a folder of the checkout.

The folder is separate from ``~/.ssh`` and from other checkouts. No stack's state has any of it. The key alone opens
nothing: at each connection the proxy has AWS admit the key for a minute, with the user's own AWS credentials.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from containers.child_environment import LOCAL_SECONDS, child_environment
from containers.errors import SlipwayError
from stacks.config.stack_file import ROOT
from stacks.places import code

HOST = "slipway-builder"
"""The builder's host name in its configuration. Each builder has a separate configuration file."""

USER = "build"
"""The builder's user. It may use Docker and nothing else."""

REFUSED = "refused"
"""The file in the folder with AWS's reason for refusing the last connection."""

SECONDS = 900
"""Seconds to wait for a connection. A new machine starts and sets itself up in that time."""

_FOLDER = Path(".slipway/builder")
_LONGEST = 107 - 17
"""Maximal characters of a socket's path (unix(7)), less ssh's temporary suffix."""

_CONFIG = """# Written by Slipway at `pulumi up`. From this checkout: ssh -F {config} {host}
Host {host}
  User {user}
  IdentityFile "{folder}/key"
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  LogLevel ERROR
  # AWS proves which machine it is: the way leads to an instance by its id. Its host keys are others with each machine.
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  # Session Manager ends a session of 20 silent minutes.
  ServerAliveInterval 15
  ServerAliveCountMax 8
  ProxyCommand env PYTHONPATH="{code}" "{python}" -P -m {proxy} {region} {name} "{folder}"
"""
_PROXY = "components.runners.ec2.builder.ssh_proxy"
_SHARED = """  # A build has many connections, and Session Manager takes seconds for each.
  ControlMaster auto
  ControlPath "{folder}/s"
  ControlPersist 60
"""


def folder(name: str, root: Path = ROOT) -> Path:
    """Return the folder of a builder's configuration and key."""
    return root / _FOLDER / name


def config(name: str) -> str:
    """Return the path of ssh's configuration, relative to the checkout, where the program and its plugins run."""
    return str(_FOLDER / name / "config")


def options(name: str) -> list[str]:
    """Return ssh's options. Without the timeout, Docker's client waits for only 30 seconds."""
    return ["-F", config(name), "-o", f"ConnectTimeout={SECONDS}"]


def rendered(region: str, name: str, root: Path = ROOT, python: str = sys.executable) -> str:
    """Return the text of ssh's configuration."""
    paths = {"code": code(root), "folder": folder(name, root), "python": python}
    escaped = {key: str(path).replace("%", "%%") for key, path in paths.items()}  # ssh expands %
    shared = len(f"{folder(name, root)}/s") <= _LONGEST
    text = _CONFIG + (_SHARED if shared else "")
    return text.format(host=HOST, user=USER, config=config(name), proxy=_PROXY, region=region, name=name, **escaped)


def write(region: str, name: str, root: Path = ROOT) -> None:
    """Write the configuration, and a key unless there is one.

    Raises SlipwayError: a program that the connection needs is not on PATH.
    """
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise SlipwayError(f"slipway:runners.build needs `{program}` on PATH: install {package}")
    to = folder(name, root)
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    (to / "config").write_text(rendered(region, name, root), encoding="utf-8")
    if not (to / "key.pub").exists():
        (to / "key").unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(to / "key")]
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, env=child_environment("ssh-keygen"), timeout=LOCAL_SECONDS
        )


_PROGRAMS = {
    "ssh": "OpenSSH's client",
    "ssh-keygen": "OpenSSH's client",
    "aws": "AWS's CLI",
    "session-manager-plugin": "AWS's Session Manager plugin for its CLI",
}
