"""The credentials with which a stack pushes: the configuration's, the machine's own, or those of its identity."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from oci import azure_login, docker_login
from stacks.config.registries import Registry
from stacks.config.registries.generic import GenericRegistry
from stacks.config.stack_file import NAMESPACE
from stacks.errors import SlipwayError


def check(registry: Registry) -> None:
    """Refuse a registry that takes nobody's push without a login, where there is none.

    Raises:
        SlipwayError: naming the ways to give credentials.
    """
    if not isinstance(registry, GenericRegistry) or registry.ANONYMOUS or registry.password is not None:
        return
    host = registry.repository.partition("/")[0]
    if _has_docker_login(host) or short_lived(registry):
        return
    variables = " and ".join(f"${name}" for name in registry.VARIABLES.values())
    if registry.IDENTITY:
        variables += ", or " + ", ".join(f"${name}" for name in registry.IDENTITY)
    key = f"{NAMESPACE}:registry"
    raise SlipwayError(
        f"{key}: no credentials for {host}: set {key}.username and, with `pulumi config set --secret --path`, "
        f"{key}.password; or {variables}; or run `docker login {host}`; or say {NAMESPACE}:publish: false"
    )


def short_lived(registry: GenericRegistry) -> Callable[[], tuple[str, str]] | None:
    """Return what gives a user name and a password that do not last; None where a login is given or stored.

    Only Azure has such, where the environment says who the program is.
    """
    if not registry.IDENTITY or not all(os.environ.get(name) for name in registry.IDENTITY):
        return None
    host = registry.repository.partition("/")[0]
    if registry.password is not None or _has_docker_login(host):
        return None
    return functools.partial(azure_login.login, host)


def _has_docker_login(host: str) -> bool:
    """Tell whether the machine's own Docker login serves for a registry."""
    try:
        return bool(docker_login.stored(host))
    except ValueError:
        return True  # a helper does not work here: the push will say why
