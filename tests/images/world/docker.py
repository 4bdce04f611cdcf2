"""The engine's command line, as the tests of images use it."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

CLIENT = "/usr/bin/docker"
"""Debian's client builds with BuildKit by itself; a newer one on PATH may want a plugin for it."""


class BuildError(Exception):
    """A build failed; the text is all that it printed."""


def docker(*arguments: str, check: bool = True) -> str:
    """Run a command and return what it printed."""
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run([CLIENT, *arguments], capture_output=True, text=True, env=environment, check=False)
    if check and done.returncode:
        raise BuildError(f"docker {' '.join(arguments[:2])}: {done.stdout}{done.stderr}")
    return done.stdout + (done.stderr if not check or arguments[0] == "build" else "")


def build(
    context: Path,
    *,
    args: Mapping[str, str],
    dockerfile: Path | None = None,
    target: str | None = None,
    tag: str | None = None,
    output: Path | None = None,
    no_cache: bool = False,
) -> str:
    """Build an image, or a target's files into ``output``; return what the build printed."""
    command = ["build", "--progress=plain", *(["--no-cache"] if no_cache else [])]
    command += [f"--build-arg={key}={value}" for key, value in args.items()]
    command += ["--file", str(dockerfile)] if dockerfile else []
    command += ["--target", target] if target else []
    command += ["--tag", tag] if tag else []
    command += ["--output", f"type=local,dest={output}"] if output else []
    return docker(*command, str(context))


def gateway() -> str:
    """Return this machine's address on the engine's own network, by which a build reaches it."""
    network = json.loads(docker("network", "inspect", "bridge"))[0]["IPAM"]["Config"][0]
    subnet = ipaddress.ip_network(network["Subnet"])
    shown = subprocess.run(["ip", "-j", "-4", "address"], check=True, capture_output=True, text=True).stdout
    addresses = [entry["local"] for interface in json.loads(shown) for entry in interface["addr_info"]]
    own: str = next(address for address in addresses if ipaddress.ip_address(address) in subnet)
    return own
