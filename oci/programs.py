"""Programs that read or write images in registries, such as cosign: the environment and the login that they get."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from oci.child_environment import child_environment
from oci.credentials import Login
from oci.errors import SlipwayError, one_line
from oci.logins import docker_login

_TIMEOUT: Final = 1800
"""Seconds for one program: some read the whole image."""


class Failed(SlipwayError):
    """A program ended with an exit status other than 0."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run(
    words: Sequence[str],
    subject: str,
    login: Login | None,
    variables: Mapping[str, str],
    folder: Path | None = None,
    called: str = "",
) -> str:
    """Run a program and return its standard output.

    ``subject`` begins the error. ``variables`` are those that the program gets beyond the few that every one does.
    ``folder`` is where it runs; by default this process's folder. ``called`` is what an error says that failed; by
    default the first two of ``words``.

    Raises:
        Failed: the program failed.
        SlipwayError: the program is not on PATH, or does not end.
    """
    with _docker_config(login) as config:
        try:
            completed = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={**child_environment(words[0]), **variables, **config},
                cwd=folder,
                timeout=_TIMEOUT,
                check=False,
            )
        except FileNotFoundError:
            raise SlipwayError(f"{subject}: {missing(words[0])}") from None
        except subprocess.TimeoutExpired:
            raise SlipwayError(f"{subject}: {words[0]} did not end within {_TIMEOUT // 60} minutes") from None
    if completed.returncode:
        message = f"{subject}: {called or ' '.join(words[:2])}: {_reason(completed.stderr)}"
        raise Failed(message, completed.returncode)
    return completed.stdout


def missing(name: str) -> str:
    """Return the error for a program that is not there."""
    return f"{name} is not on PATH; `make up` installs it; or install it yourself, or remove that key"


def _reason(text: str) -> str:
    """Return the error in a program's standard error, without its warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return one_line((errors or lines or ["it failed without a message"])[0 if errors else -1], 300)


@contextlib.contextmanager
def _docker_config(login: Login | None) -> Iterator[Mapping[str, str]]:
    """Yield the environment variables by which programs log in; none selects the machine's Docker login."""
    if login is None:
        yield {}
        return
    text = docker_login.configuration(login.host, login.username, login.password)
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        Path(folder, "config.json").write_text(text, encoding="utf-8")
        yield {"DOCKER_CONFIG": folder}
