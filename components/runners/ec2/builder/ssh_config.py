"""The ssh alias of a builder: a folder of this machine with ssh's configuration and a key, for whoever deploys.

The folder is the checkout's, so that neither ``~/.ssh`` nor another checkout knows of it. Nothing in it is in a stack's
state, and the key opens nothing by itself: AWS lets it in for a minute, each time that the proxy asks with the user's
own credentials.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.errors import SlipwayError

HOST = "slipway-builder"
"""What a builder is called in its configuration: the same for all, as each has a file of its own."""

USER = "build"
"""Who builds there: a user of Docker, and nothing else."""

REFUSED = "refused"
"""The file of the folder in which the proxy says why AWS lets nobody in."""

SECONDS = 900
"""How long a connection is waited for: a machine that is new starts, and sets itself up."""

_FOLDER = Path(".slipway/builder")
_LONGEST = 107 - 17
"""Most characters of a socket's path (unix(7)), less what ssh adds to it for a moment."""

_CONFIG = """# Written by Slipway at `pulumi up`. From this checkout: ssh -F {shown} {host}
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
  ProxyCommand env PYTHONPATH="{root}" "{python}" -P -m {proxy} {region} {name} "{folder}"
"""
_PROXY = "components.runners.ec2.builder.ssh_proxy"
_SHARED = """  # A build has many connections, and Session Manager takes seconds for each.
  ControlMaster auto
  ControlPath "{folder}/s"
  ControlPersist 60
"""


def folder(name: str, root: Path = ROOT) -> Path:
    """Return the folder of a builder's alias."""
    return root / _FOLDER / name


def config(name: str) -> str:
    """Return ssh's configuration as the program and its plugins name it, who all run in the checkout's folder."""
    return str(_FOLDER / name / "config")


def options(name: str) -> list[str]:
    """Return ssh's options; Docker's own client waits for no more than 30 seconds unless told."""
    return ["-F", config(name), "-o", f"ConnectTimeout={SECONDS}"]


def rendered(region: str, name: str, root: Path = ROOT, python: str = sys.executable) -> str:
    """Return ssh's configuration."""
    paths = {"root": root, "folder": folder(name, root), "python": python}
    where = {key: str(path).replace("%", "%%") for key, path in paths.items()}  # % is ssh's own
    shared = len(f"{folder(name, root)}/s") <= _LONGEST
    text = _CONFIG + (_SHARED if shared else "")
    return text.format(host=HOST, user=USER, shown=config(name), proxy=_PROXY, region=region, name=name, **where)


def write(region: str, name: str, root: Path = ROOT) -> None:
    """Write the alias, with a key unless there is one.

    Raises:
        SlipwayError: a program is not on PATH that a connection takes.
    """
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise SlipwayError(f"slipway:runners.build takes `{program}` on PATH: install {package}")
    to = folder(name, root)
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    (to / "config").write_text(rendered(region, name, root), encoding="utf-8")
    if not (to / "key.pub").exists():
        (to / "key").unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(to / "key")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


_PROGRAMS = {
    "ssh": "OpenSSH's client",
    "ssh-keygen": "OpenSSH's client",
    "aws": "AWS's CLI",
    "session-manager-plugin": "AWS's Session Manager plugin for its CLI",
}
