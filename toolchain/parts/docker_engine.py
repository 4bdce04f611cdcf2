"""The Docker engine: a running one, else Debian's docker.io, started on a socket of the checkout.

A Debian whose docker.io is old runs the one of a newer release, unpacked beside the machine's own.
"""

import os
import re
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from containers.addresses.engine_address import in_clear
from containers.child_environment import child_environment
from toolchain.checkout import STARTING, Checkout
from toolchain.machine import apt
from toolchain.machine.daemon import Daemon
from toolchain.machine.network import bridge, proxy
from toolchain.machine.steps import last_line, output, say, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts.part import Kind, Part, recall, remember
from toolchain.version import numbers

NAME: Final = "Docker engine"
DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
START_SECONDS: Final = 60.0
COLLECTOR: Final = {"GOGC": "400"}
"""How seldom our engine frees memory (https://go.dev/doc/gc-guide): a build that hashes many files takes a sixth less
CPU time, and 150 MB more."""
PROGRAMS: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-init": "docker.io",
    "iptables": "iptables",
    "ip": "iproute2",
}
"""The programs that our engine needs on PATH, and their Debian packages."""
VARIABLE: Final = "SLIPWAY_DOCKER_ENGINE"
"""Environment variable: `installed` has this machine's docker.io, `newer` (the default) that of RELEASE if older."""
CHOICES: Final = ("newer", "installed")
RELEASE: Final = "trixie"
"""The Debian release whose engine is taken where this machine's is older than :data:`NEW_ENOUGH`."""
NEW_ENOUGH: Final = (26,)
"""The engine of :data:`RELEASE` is 26.1.5 with a BuildKit of 2024. Debian 12 has one of 2022, with builds that hang."""
UNPACKED: Final = ("docker.io", "containerd", "tini")
"""Its packages. They run with this machine's runc: that of the release wants a newer C library."""
FOLDER: Final = Path("/var/lib/slipway") / f"docker.io-{RELEASE}"
"""Where they are, for all checkouts of this machine. Only root starts an engine, so that only root writes there."""


def _socket(checkout: Checkout) -> Path:
    return checkout.run / "docker.sock"


def _host(checkout: Checkout) -> str:
    return f"unix://{_socket(checkout)}"


def _exec_root(checkout: Checkout) -> Path:
    return checkout.run / "docker"


def daemon(checkout: Checkout) -> Daemon:
    """Return our engine, running or not."""
    return Daemon(NAME, checkout.run / "docker.pid", checkout.logs / "docker.log", _host(checkout), _reason)


def _reason(log: str) -> str:
    """Return the first of an engine's lines that is an error.

    Its last line may be about containerd, with the reason in an earlier one.
    """
    lines = [
        line for line in log.splitlines() if line.strip() and not re.search(r"\blevel=(debug|info|warning)\b", line)
    ]
    return next((line for line in lines if "level=" not in line), lines[0] if lines else last_line(log))


def _server_version(environment: Mapping[str, str]) -> str:
    """Return the version of the engine that a client in this environment reaches. Raises ToolchainError."""
    return output(["docker", "version", "--format", "{{.Server.Version}}"], env=environment, timeout=5)


def _running(checkout: Checkout) -> Part | None:
    """Return our engine if it runs, answers, and still has its bridge."""
    if daemon(checkout).pid() is None or bridge.subnet(checkout) is None:
        return None
    environment = {"DOCKER_HOST": _host(checkout)}
    noted = recall(checkout, NAME)
    try:
        version = _server_version(child_environment("docker", **environment))
    except ToolchainError:
        return None
    return Part(NAME, f"Debian's docker.io at {_host(checkout)}", version, noted.why if noted else "", environment)


def _configured(checkout: Checkout) -> tuple[Part | None, str]:
    """Return the engine that this user's client reaches, or the reason why there is none.

    DOCKER_HOST goes first, then the current context, then the default socket, as in the docker client itself. Where a
    context decides, its address is put into our environment: the provider's libraries do not read contexts.
    """
    environment = child_environment("docker")
    if environment.get("DOCKER_HOST") in {"", _host(checkout)}:
        del environment["DOCKER_HOST"]  # nothing, or ours from a sourced .slipway/env
    if shutil.which("docker") is None:
        return None, "no docker client on PATH"
    try:
        version = _server_version(environment)
        host = output(["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"], env=environment)
    except ToolchainError as error:
        if "DOCKER_HOST" in environment:  # the user has chosen it: another would be a surprise
            raise ToolchainError(
                f"the Docker engine at DOCKER_HOST={environment['DOCKER_HOST']} does not answer ({error}): start it, "
                "or unset DOCKER_HOST"
            ) from None
        return None, f"no running engine ({error})"
    if "DOCKER_HOST" in environment:
        chosen = environment["DOCKER_HOST"]
        open_to_all = in_clear(chosen) and not environment.get("DOCKER_TLS_VERIFY")
        warning = "; without TLS, so that whoever reaches it is root there: take ssh://" if open_to_all else ""
        return Part(NAME, f"the running engine at {chosen}{warning}", version), ""
    return Part(
        NAME, f"the running engine at {host}", version, env={} if host == DEFAULT_SOCKET else {"DOCKER_HOST": host}
    ), ""


def is_elsewhere(checkout: Checkout) -> bool:
    """Tell from its address whether the engine in use is on another machine."""
    noted = recall(checkout, NAME)
    host = urllib.parse.urlsplit((noted and noted.env.get("DOCKER_HOST")) or os.environ.get("DOCKER_HOST", ""))
    return host.scheme in {"tcp", "ssh", "http", "https"} and host.hostname not in proxy.LOOPBACK


def find(checkout: Checkout) -> Part | None:
    """Return our engine if it runs, else the user's."""
    return _running(checkout) or _configured(checkout)[0]


def _install(checkout: Checkout) -> str:
    """Install what the engine needs. Return its PATH: the folders of a newer release go first where it has one."""
    choice = os.environ.get(VARIABLE) or CHOICES[0]
    if choice not in CHOICES:
        raise ToolchainError(f"{VARIABLE}={choice}: allowed are {' and '.join(CHOICES)}")
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        apt.install(checkout, *missing)
    installed = numbers(output(["dockerd", "--version"]))
    if choice == "installed" or installed >= NEW_ENOUGH:
        return os.environ["PATH"]
    if not FOLDER.is_dir():
        try:
            apt.unpack_release(checkout, RELEASE, UNPACKED, FOLDER)
        except ToolchainError as error:
            say(f"Docker {'.'.join(map(str, installed))} is used, as Debian {RELEASE}'s was not available: {error}")
            return os.environ["PATH"]
    return os.pathsep.join([*(str(FOLDER / "usr" / part) for part in ("sbin", "bin")), os.environ["PATH"]])


def _start(checkout: Checkout, path: str, under: Sequence[str], options: Sequence[str]) -> None:
    """Start dockerd in separate process and mount namespaces: when it ends, nothing of it remains."""
    shutil.rmtree(_exec_root(checkout), ignore_errors=True)  # sockets and pids of an earlier life
    _socket(checkout).unlink(missing_ok=True)
    bridge.create(checkout)
    argv: list[str | Path] = [
        *under, "unshare", "--fork", "--pid", "--mount-proc", "--propagation", "slave", "--kill-child",
        "docker-init", "--",
        "dockerd", "--host", _host(checkout), "--data-root", checkout.state / "docker",
        "--exec-root", _exec_root(checkout), "--pidfile", _exec_root(checkout) / "dockerd.pid",
        "--bridge", bridge.name(checkout), "--mtu", str(bridge.mtu()), "--iptables=false", "--ip-masq=false", *options,
    ]  # fmt: skip
    environment = child_environment("dockerd", PATH=path, **COLLECTOR)
    daemon(checkout).start(argv, lambda: _running(checkout) is not None, env=environment, seconds=START_SECONDS)


def start_own(checkout: Checkout, *, under: Sequence[str] = (), options: Sequence[str] = ()) -> str:
    """Start an engine of a checkout, whichever other one answers, and return its address.

    A checkout without images has an empty one. ``under`` is a command that starts another one, appended to it;
    ``options`` are more options of dockerd. Raises ToolchainError where it does not start.
    """
    _start(checkout, _install(checkout), under, options)
    return _host(checkout)


def get(checkout: Checkout) -> Part:
    """Get an engine that answers."""
    if part := _running(checkout):
        return remember(checkout, part)
    part, why = _configured(checkout)
    if part:
        return remember(checkout, part)
    if not apt.is_root():
        raise ToolchainError(
            f"no Docker engine: {why}. Start Docker, or give this user access to it (group docker), and run this again"
        )
    path = _install(checkout)
    part, _ = _configured(checkout)  # on some machines the package starts its service
    if part:
        return remember(checkout, part)
    daemon(checkout).stop()
    with step("Starting Debian's docker.io"):
        _start(checkout, path, (), ())
    engine = _running(checkout)
    if engine is None:
        raise ToolchainError(f"{NAME} ended as soon as it was started; its output is in {checkout.logs / 'docker.log'}")
    return remember(checkout, replace(engine, why=why))


def stop(checkout: Checkout) -> bool:
    """Stop our engine and remove its network. Returns whether it ran."""
    ran = daemon(checkout).stop()
    if apt.is_root() and shutil.which("ip") is not None:
        bridge.remove(checkout)
    _socket(checkout).unlink(missing_ok=True)
    shutil.rmtree(_exec_root(checkout), ignore_errors=True)
    return ran


KIND: Final = Kind(NAME, find, get, missing=f"not running: {STARTING} starts it")
