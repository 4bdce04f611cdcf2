"""A Docker configuration with the login of our registry; the rest of it is the user's own.

No login is in it, ours or theirs: its credential helper, :mod:`toolchain.registry_login.docker_credential`, reads ours
from its file, and passes other registries on to the user's configuration. There `docker login` stores, too.
"""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from stacks.places import CODE
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.toolchain_error import without_credentials
from toolchain.registry_login import docker_credential

VARIABLE: Final = "DOCKER_CONFIG"
_LOGINS: Final = {"auths", "credHelpers", "credsStore", "HttpHeaders"}
"""Keys of the user's configuration that are not copied, as they have or name logins."""
_SCRIPT: Final = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from toolchain.registry_login.docker_credential import main
main()
"""


def folder(checkout: Checkout) -> Path:
    """Return the configuration's folder."""
    return checkout.state / "docker-config"


def users() -> Path:
    """Return the folder of the user's own configuration; in a shell that has sourced an `.slipway/env` too."""
    theirs = Path(os.environ.get(VARIABLE) or Path("~/.docker").expanduser()).absolute()
    link = theirs / docker_credential.USERS
    return link.readlink() if link.is_symlink() else theirs


def save(checkout: Checkout) -> None:
    """Write the configuration and its helper, with today's settings of the user."""
    ours, theirs = folder(checkout), users()
    helper = f"slipway-{checkout.id}"  # of this checkout, whichever is first on PATH
    words = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(CODE), str(checkout.root), str(ours)]
    write(checkout.bin / f"docker-credential-{helper}", f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', mode=0o755)
    settings = {key: value for key, value in _settings(theirs).items() if key not in _LOGINS}
    text = without_credentials(json.dumps({**settings, "credsStore": helper}, indent=2))
    write(ours / "config.json", f"{text}\n", mode=0o600)
    # Plugins may come later, such as buildx for an export.
    links = {docker_credential.USERS: theirs, "cli-plugins": theirs / "cli-plugins"}
    if theirs.is_dir():
        links |= {entry.name: entry for entry in theirs.iterdir()}  # contexts, builders
    for link in ours.iterdir():
        if link.is_symlink():
            link.unlink()
    for name, target in links.items():
        if not (ours / name).exists():
            (ours / name).symlink_to(target)


def _settings(theirs: Path) -> dict[str, Any]:
    try:
        content = json.loads((theirs / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
