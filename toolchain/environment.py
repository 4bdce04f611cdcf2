"""The environment that everything runs in: the variables and folders of all parts, in `.slipway/env`."""

import os
import secrets
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from toolchain.checkout import STARTING, Checkout
from toolchain.machine.files import write
from toolchain.machine.network import apt_mirrors, proxy
from toolchain.parts.part import Part
from toolchain.parts.pulumi_cli import SHELL

DROPPED: Final = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_STACK", "PULUMI_ACCESS_TOKEN")
"""The user's own Pulumi settings that would override the checkout's."""
SYSTEM: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian keeps programs such as dockerd and iptables; a plain user's PATH lacks them."""
TRIMMED: Final = Path(__file__).parent / "pulumi_run" / "programs"
"""Programs that Pulumi finds before the machine's own; these get none of its secrets."""


def prepare() -> None:
    """Let this process and its children find the system's programs, and reach this machine past a proxy."""
    path = os.get_exec_path()
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in SYSTEM if folder not in path)])
    os.environ.update(proxy.past(os.environ))


def _checkout_variables(checkout: Checkout) -> dict[str, str]:
    return {
        "PULUMI_HOME": str(checkout.pulumi_home),
        "PULUMI_BACKEND_URL": checkout.backend.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(checkout.passphrase),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def _merged(checkout: Checkout, parts: Iterable[Part]) -> tuple[dict[str, str], list[str]]:
    variables, folders = _checkout_variables(checkout), [str(SHELL)]
    for part in parts:
        variables |= part.env
        folders += [folder for folder in part.path if folder not in folders]
    below = variables.pop(apt_mirrors.VARIABLE, "{}")
    return {**variables, **apt_mirrors.merged(apt_mirrors.configured(os.environ), below)}, folders


def variables(checkout: Checkout, parts: Iterable[Part]) -> dict[str, str]:
    """Return Pulumi's environment: this process's, changed as `.slipway/env` changes a shell's, and `TRIMMED`."""
    changes, folders = _merged(checkout, parts)
    inherited = {name: value for name, value in os.environ.items() if name not in {*DROPPED, apt_mirrors.VARIABLE}}
    path = os.pathsep.join([str(TRIMMED), *folders, inherited["PATH"]])
    return {**inherited, **changes, **proxy.past(inherited), "PATH": path}


def save(checkout: Checkout, parts: Iterable[Part]) -> None:
    """Write `.slipway/env`, and the folders and the passphrase that it names."""
    changes, folders = _merged(checkout, parts)
    if not checkout.passphrase.exists():
        write(checkout.passphrase, secrets.token_urlsafe(32) + "\n", mode=0o600)
    for folder in (checkout.backend, checkout.pulumi_home):
        folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Source this file: `. .slipway/env`. {STARTING} writes it again.",
        f"unset {' '.join(DROPPED)}",
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(changes.items())),
        proxy.SHELL.rstrip(),
        f'export PATH={shlex.quote(os.pathsep.join(folders))}":$PATH"',
    ]
    write(checkout.env_file, "\n".join(lines) + "\n", mode=0o600)
