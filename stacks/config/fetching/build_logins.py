"""``slipway:buildSecrets``: logins for the hosts of builds' downloads, such as a private package index.

A login reaches a build as a file of the steps that fetch, a ``netrc``, and no other way: it is no argument, no part of
an image's identity, and in no layer. A step's file has the logins of the sources that it fetches from, and no others.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from containers.errors import SlipwayError
from stacks.config.fetching.mirrors import SOURCES, MirrorsConfig, url_host
from stacks.config.model import Line, Model, Secret, matching
from stacks.config.stack_file import NAMESPACE

KEY = f"{NAMESPACE}:buildSecrets"

_WORD = r"(?!#)[!#-&(-\[\]-~]+"
"""A word of ``netrc`` that pip, git, curl and apt read alike: they differ over quotes, backslashes and comments."""
_PORT = re.compile(r"(.+):[0-9]+")


def check_host(value: str) -> str:
    """Return the name or IPv4 address of a host; raises ValueError for anything else, such as an address of the web."""
    if port := _PORT.fullmatch(value):
        raise ValueError(f"a login is that of a host, whatever the port: write {port[1]}")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", value):
        raise ValueError("expected a host's name, such as pypi.example.com, without https:// and path")
    return value.lower()


_username = matching(_WORD, "a user name of ASCII without blanks, quotes and backslashes, not beginning with #")
_variable = matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, such as INDEX_TOKEN")


class BuildLoginConfig(Model):
    """A user name and a password, which is encrypted here, or elsewhere: in a variable or a file."""

    username: Annotated[str, AfterValidator(_username)] = Field(
        description="User name. Hosts that ask for a token alone say which name goes with it, such as __token__."
    )
    password: Secret | None = Field(None, description="Password or token, always a secret.")
    variable: Annotated[str, AfterValidator(_variable)] | None = Field(
        None, description="Environment variable that has the password instead."
    )
    file: Line | None = Field(
        None, description="File that has the password instead, outside of the checkout. ~ is the home directory."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("password", "variable", "file") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected one of password, variable and file, not {' and '.join(given) or 'none of them'}"
            )
        return self


def passwords(logins: Mapping[str, BuildLoginConfig]) -> dict[str, str]:
    """Return each host's password, from where it is kept.

    Raises:
        SlipwayError: a variable is empty, a file cannot be read, or a password has a character that ``netrc`` has not.
    """
    values = {host: _password(host, login) for host, login in logins.items()}
    for host, value in values.items():
        if not re.fullmatch(_WORD, value):
            raise SlipwayError(
                f"{KEY}: {host}: the password is empty, begins with # or has a blank, a quote, a backslash or a letter "
                "outside ASCII, which pip, git, curl and apt do not all read: have the host give another"
            )
    return values


def netrc(logins: Mapping[str, BuildLoginConfig], values: Mapping[str, str]) -> str:
    """Return the logins, with the hosts' passwords, as the file that pip, git, curl and apt read."""
    return "".join(f"machine {host} login {login.username} password {values[host]}\n" for host, login in logins.items())


def netrc_files(
    logins: Mapping[str, BuildLoginConfig], values: Mapping[str, str], mirrors: MirrorsConfig
) -> dict[str, str]:
    """Return the secrets of all builds by their ids.

    ``netrc`` is for Dockerfiles of a user, and has all logins. ``netrc-git-index`` is for a step that fetches from
    these two of :data:`stacks.config.fetching.mirrors.SOURCES`. A host that no mirror names is in each: an index may
    link to files elsewhere.
    """
    by_source = {source: set(map(url_host, urls)) for source, urls in mirrors.urls_by_source.items()}
    elsewhere = logins.keys() - set().union(*by_source.values())
    files = {"netrc": netrc(logins, values)}
    for count in range(1, len(SOURCES) + 1):
        for sources in itertools.combinations(SOURCES, count):
            hosts = elsewhere.union(*(by_source[source] for source in sources))
            lent = {host: login for host, login in logins.items() if host in hosts}
            if lent:
                files["-".join(("netrc", *sources))] = netrc(lent, values)
    return files


def _password(host: str, login: BuildLoginConfig) -> str:
    if login.password is not None:
        return login.password.get_secret_value()
    if login.variable is not None:
        if not (value := os.environ.get(login.variable)):
            raise SlipwayError(f"{KEY}: {host}: ${login.variable} is not set: set it to the password of {host}")
        return value
    try:
        return Path(login.file or "").expanduser().read_text(encoding="utf-8").strip()
    except RuntimeError:  # there is no such user
        raise SlipwayError(f"{KEY}: {host}: there is no home directory of {login.file}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise SlipwayError(f"{KEY}: {host}: cannot read the password in {login.file}: {reason}") from None
