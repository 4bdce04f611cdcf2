"""Where the login of a registry comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


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
            ``containers.registry.logins.azure_login``; empty for none. ``stack_login`` says what it has.
    """

    host: str
    username: str | None
    password: str | None = field(repr=False)
    variables: Sequence[str]
    anonymous: bool = True
    identity: str = ""
