"""The environment of the tests: nothing of who runs them, whatever their machine has set for git, Docker, pip or a cloud."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

_PROGRAMS: Final = (
    r"PATH|TMPDIR|TERM|USER|LOGNAME|SHELL|LD_LIBRARY_PATH|VIRTUAL_ENV|(PYENV|NIX|LOCALE)_\w+"
    r"|PYTHON\w*|(PYTEST|HYPOTHESIS|COVERAGE|COV)_\w+"
)
"""The variables by which programs are found, and by which pytest is told what to do."""
_NETWORK: Final = (
    r"(HTTPS?|FTP|NO|ALL)_PROXY|(https?|ftp|no|all)_proxy|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|GIT_SSL_CAINFO"
    r"|NODE_EXTRA_CA_CERTS|(PIP|UV)_\w+|GO(PROXY|PRIVATE|NOPROXY|SUMDB|NOSUMDB|NOSUMCHECK|INSECURE|AUTH|ENV)"
)
"""The variables of this machine's way to the network. What only reaches stand-ins takes no such way."""
_SERVICES: Final = r"(SLIPWAY|PULUMI)_\w+|DOCKER_(HOST|CERT_PATH|TLS_VERIFY)"
"""The variables of `.slipway/env`, by which tests reach the engine and the registry of the checkout."""

_HERMETIC: Final = re.compile(rf"{_NETWORK}|{_SERVICES}")
_KEPT: Final = re.compile(rf"{_PROGRAMS}|{_HERMETIC.pattern}")


def _files(home: Path) -> dict[str, str]:
    """Return the variables that name what programs read of a user, or of the whole machine."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "DOCKER_CONFIG": str(home / "docker"),  # not in ~/.docker, where docker-py looks in any case
        "AWS_CONFIG_FILE": str(home / ".aws/config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / ".aws/credentials"),
        "AZURE_CONFIG_DIR": str(home / ".azure"),
        "GNUPGHOME": str(home / ".gnupg"),
        "LANG": "C.UTF-8",
        # A child that is to be another user is forked, and gRPC's handlers in it can end it before it is the program.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        # Go's programs, of which the tests start some thousand, collect their garbage less often: they end at once anyway.
        "GOGC": "400",
    }


def _log_in(home: Path, before: Mapping[str, str]) -> None:
    """Store the login of the checkout's registry, for the tests that reach it; it is the one login there is."""
    from toolchain.checkout import Checkout
    from toolchain.registry_login import registry_account, registry_port

    checkout, address = Checkout.here(), before.get("SLIPWAY_REGISTRY", "")
    if address in map(registry_port.address, registry_port.ports(checkout)):
        login = registry_account.header(checkout).removeprefix("Basic ")
        (home / "docker").mkdir()
        (home / "docker/config.json").write_text(json.dumps({"auths": {address: {"auth": login}}}))


def login_as(address: str, registry: str) -> None:
    """Store the login of a registry under another address too, which leads to it."""
    file = Path(os.environ["DOCKER_CONFIG"], "config.json")
    config = json.loads(file.read_text())
    config["auths"][address] = config["auths"][registry]
    file.write_text(json.dumps(config))


def _settings(home: Path, suffix: str, environment: dict[str, str]) -> str:
    """Return the path of a user's settings below `~/.config`, which is empty where there are none."""
    file = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / suffix
    return str(file) if file.is_file() else ""


def enter() -> None:
    """Give this process, and what it starts, a home of its own. What is left of it at the end is removed."""
    before = dict(os.environ)
    home = Path(tempfile.mkdtemp(prefix="slipway-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ.clear()
    os.environ.update({name: value for name, value in before.items() if _KEPT.fullmatch(name)})
    os.environ.update(_files(home))
    forget_git()
    _log_in(home, before)
    user = Path(before.get("HOME", "/nonexistent"))  # its indexes and proxies are the machine's way to the network
    for variable, suffix in (("PIP_CONFIG_FILE", "pip/pip.conf"), ("GOENV", "go/env")):
        if file := before.get(variable) or _settings(user, suffix, before):
            os.environ[variable] = file
    os.umask(0o022)


def forget_git() -> None:
    """Empty git's settings, which `git config` wants to be a file."""
    file = Path(os.environ["GIT_CONFIG_GLOBAL"])
    if not file.exists() or file.stat().st_size:
        file.write_bytes(b"")


def leave_network(patch: pytest.MonkeyPatch) -> None:
    """Take the ways to the network, and to the services of this checkout, from this process and what it starts."""
    patch.setenv("DOCKER_CONFIG", str(Path(os.environ["HOME"], ".docker")))
    for name in [name for name in os.environ if _HERMETIC.fullmatch(name)]:
        patch.delenv(name)
    for name in ("NO_PROXY", "no_proxy"):  # some modules have taken the proxies already, as they were imported
        patch.setenv(name, "127.0.0.1,localhost,::1")
    patch.setenv("PIP_CONFIG_FILE", os.devnull)  # /etc/pip.conf too
    patch.setenv("GOENV", "off")
