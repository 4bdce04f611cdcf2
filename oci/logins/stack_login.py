"""The login of a stack's registry: the configured one, or a short-lived one of the environment's cloud identity."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from oci.credentials import Login
from oci.logins import azure_login, docker_login
from stacks.config.load import ENCRYPTED
from stacks.config.registries import Registry
from stacks.config.registries.generic import GenericRegistry
from stacks.config.stack_file import NAMESPACE
from stacks.errors import SlipwayError


def check(registry: Registry) -> None:
    """Check that there is a login for a registry that requires one to push.

    Raises:
        SlipwayError: there is none; the message lists the ways to give one.
    """
    if not isinstance(registry, GenericRegistry) or registry.ANONYMOUS or registry.password is not None:
        return
    host = _host(registry)
    if _has_docker_login(host) or short_lived(registry):
        return
    variables = " and ".join(f"${name}" for name in registry.VARIABLES.values())
    if registry.IDENTITY:
        variables += ", or " + ", ".join(f"${name}" for name in registry.IDENTITY)
    key = f"{NAMESPACE}:registry"
    raise SlipwayError(
        f"{key}: no credentials for {host}: set {key}.username and, with `pulumi config set --secret --path`, "
        f"{key}.password; or set {variables}; or run `docker login {host}`; or set {NAMESPACE}:publish: false"
    )


def configured(registry: Registry) -> Login | None:
    """Return the login of a stack's registry: the configured one, or one of the environment's cloud identity.

    Raises:
        SlipwayError: the cloud rejects the identity.
    """
    if not isinstance(registry, GenericRegistry):
        return None
    if request := short_lived(registry):
        return Login(_host(registry), *request())
    password = registry.password.get_secret_value() if registry.password else ""
    if not (registry.username and password) or password == ENCRYPTED:
        return None
    return Login(_host(registry), registry.username, password)


def short_lived(registry: GenericRegistry) -> Callable[[], tuple[str, str]] | None:
    """Return a function that requests a short-lived user name and password.

    None if a login is configured or stored, or the environment has no identity. Only Azure has such logins.
    """
    if not registry.IDENTITY or not all(os.environ.get(name) for name in registry.IDENTITY):
        return None
    host = _host(registry)
    if registry.password is not None or _has_docker_login(host):
        return None
    return functools.partial(azure_login.login, host)


def _host(registry: GenericRegistry) -> str:
    return registry.repository.partition("/")[0]


def _has_docker_login(host: str) -> bool:
    try:
        return bool(docker_login.stored(host))
    except ValueError:
        return True  # a broken credential helper: the push reports its error
