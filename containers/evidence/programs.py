"""Programs that read or write images in registries, such as cosign: the environment and the login that they get."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from containers.child_program import run_program
from containers.errors import SlipwayError, one_line
from containers.registry import credentials
from containers.registry.credentials import Login
from containers.registry.logins import docker_login
from containers.registry.reference import Reference

_TIMEOUT: Final = 1800
"""Seconds for one program: some read the whole image."""


class ProgramFailed(SlipwayError):
    """A program ended with an exit status other than 0."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run(
    words: Sequence[str],
    subject: str,
    image: str,
    login: Login | None,
    variables: Mapping[str, str],
    folder: Path | None = None,
    called: str = "",
) -> str:
    """Run a program and return its standard output.

    ``subject`` begins the error. ``image`` is the image that the program is asked about; empty for none. The program
    gets the login of its registry alone, which is ``login``, or else the machine's. ``variables`` are added to the few
    that every program gets. ``folder`` is where it runs; by default this process's folder. ``called`` is the name of
    the failed step in an error; by default the first two of ``words``.

    Raises:
        ProgramFailed: the program failed.
        SlipwayError: the program is not on PATH, or does not end; or a credential helper of Docker fails.
    """
    try:
        configuration = _configuration(image, login)
    except ValueError as error:
        raise SlipwayError(f"{subject}: {error}") from None
    with tempfile.TemporaryDirectory(prefix="slipway-", dir=folder) as config:
        Path(config, "config.json").write_text(configuration, encoding="utf-8")
        try:
            environment = {**child_environment(words[0]), **variables, "DOCKER_CONFIG": config}
            completed = run_program(words, _TIMEOUT, env=environment, cwd=folder)
        except FileNotFoundError:
            raise SlipwayError(f"{subject}: {missing(words[0])}") from None
        except subprocess.TimeoutExpired:
            raise SlipwayError(f"{subject}: {words[0]} did not end within {_TIMEOUT // 60} minutes") from None
    if completed.returncode:
        message = f"{subject}: {called or ' '.join(words[:2])}: {_reason(completed.stderr)}"
        raise ProgramFailed(message, completed.returncode)
    return completed.stdout


def missing(name: str) -> str:
    """Return the error for a program that is not there."""
    return f"{name} is not on PATH; `slipway up` installs it; or install it yourself, or remove that key"


def _reason(text: str) -> str:
    """Return the error in a program's standard error, without its warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return one_line((errors or lines or ["it failed without a message"])[0 if errors else -1].removesuffix(":"), 300)


def _configuration(image: str, login: Login | None) -> str:
    """Return the Docker configuration with the login of an image's registry, which may be anonymous."""
    if not image:
        return "{}"
    host = Reference.of(image).host
    chosen = login if login and login.applies_to(image) else credentials.of_machine(host)
    if chosen is None:
        return docker_login.token_configuration(host)
    return docker_login.configuration(host, chosen.username, chosen.password)
