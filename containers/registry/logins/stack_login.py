"""The login of a stack's registry: the configured one, or a short-lived one of the environment's cloud identity."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from containers.errors import SlipwayError
from containers.registry.credentials import Login
from containers.registry.logins import docker_login

_KEY: Final = "slipway:registry"

_IDENTITIES: Final = ("containers.registry.logins.azure_login", "containers.registry.logins.google_login")
"""The modules that log in with a cloud's identity: of each registry's kind at most one.

Each has ``WAYS``, what to set to have the identity, ``HOSTS``, its registries, ``USER``, the user name of its logins,
``available()``, whether this machine has the identity, without a request, and ``login(host)``.
"""


@dataclass(frozen=True)
class LoginSources:
    """Where the login of a registry comes from, as its configuration says.

    Attributes:
        host: the registry's host, and its port if there is one.
        username: the given user name; None for none.
        password: the given password; None for none, and empty for one that is encrypted and not read.
        variables: the environment variables with the user name and the password; none for a kind without such.
        anonymous: whether the registry may accept an anonymous push.
        identity: the module that logs in with the program's identity, such as
            ``containers.registry.logins.azure_login``; empty for none.
    """

    host: str
    username: str | None
    password: str | None = field(repr=False)
    variables: Sequence[str]
    anonymous: bool = True
    identity: str = ""


class LoginRegistry(Protocol):
    """A registry of a stack."""

    @property
    def login_sources(self) -> LoginSources | None:
        """Where its login comes from; None for a registry that takes no user name and password."""


def check(registry: LoginRegistry) -> None:
    """Check for a login to a registry that requires one to push.

    Raises SlipwayError: there is none; the message lists the ways to give one.
    """
    sources = registry.login_sources
    if sources is None or sources.anonymous or sources.password is not None:
        return
    host = sources.host
    if _has_docker_login(host) or short_lived(registry):
        return
    pairs = [" and ".join(f"${name}" for name in sources.variables)] if sources.variables else []
    if sources.identity:
        pairs.append(importlib.import_module(sources.identity).WAYS)
    variables = ", or ".join(pairs)
    raise SlipwayError(
        f"{_KEY}: no credentials for {host}: set {_KEY}.username and, with `pulumi config set --secret --path`, "
        f"{_KEY}.password; or set {variables}; or run `docker login {host}`; or set slipway:publish: false"
    )


def configured(registry: LoginRegistry) -> Login | None:
    """Return the login of a stack's registry: the configured one, or one of the environment's cloud identity.

    Raises SlipwayError: the cloud rejects the identity.
    """
    sources = registry.login_sources
    if sources is None:
        return None
    if request := short_lived(registry):
        return Login(sources.host, *request())
    if not (sources.username and sources.password):
        return None
    return Login(sources.host, sources.username, sources.password)


def short_lived(registry: LoginRegistry) -> Callable[[], tuple[str, str]] | None:
    """Return a function that requests a short-lived user name and password, as the registry's kind does.

    None if a login is configured or stored, or the environment has no identity.
    """
    sources = registry.login_sources
    if sources is None or sources.password is not None or not sources.identity:
        return None
    identity = importlib.import_module(sources.identity)
    if not identity.available() or _has_docker_login(sources.host):
        return None
    return functools.partial(identity.login, sources.host)


def renewed(login: Login) -> Login:
    """Return a short-lived login with a newer token; itself if the cloud gives none.

    The caller knows that it is short-lived: a configured login may have the same user name. A build may take longer
    than its token lasts. Only the registries of a cloud get a token of it.
    """
    for identity in map(importlib.import_module, _IDENTITIES):
        if login.username == identity.USER and identity.HOSTS.fullmatch(login.host) and identity.available():
            with suppress(SlipwayError):  # the registry says whether the one that there is still counts
                return Login(login.host, *identity.login(login.host))
    return login


def _has_docker_login(host: str) -> bool:
    try:
        return bool(docker_login.stored(host))
    except ValueError:
        return True  # a broken credential helper: the push reports its error
