"""Secrets that Pulumi, its plugins and the toolchain's programs do not get: only the program that signs reads them.

They are in a file that exists in memory and ends with this process. A child has the path, and may read the file as any
process of this user may: it does not get an environment that programs print, log and pass on.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from containers.child_environment import PASSWORD, WITHHELD

KEY: Final = "COSIGN_PRIVATE_KEY"
"""The variable with the signing key in the workflows and in the guides."""


def names(configuration: str) -> set[str]:
    """Return the variables with the signing key and its password, for the text of a stack's YAML."""
    return {PASSWORD, KEY, *re.findall(r"\benv://(\w+)", configuration)}


@contextmanager
def hidden(names: Iterable[str]) -> Iterator[dict[str, str]]:
    """Take variables out of the environment, and so out of every child's, for a while; yield them."""
    values = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield values
    finally:
        os.environ.update(values)


@contextmanager
def withheld(
    names: Iterable[str], kept: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda values: values
) -> Iterator[None]:
    """Withhold variables from every child. ``kept`` returns those of them for the program that signs."""
    with hidden(names) as values:
        readable = kept(values)
        if not readable:
            yield
            return
        file = os.memfd_create("withheld")
        os.fchmod(file, 0o600)
        os.write(file, json.dumps(dict(readable)).encode())
        os.environ[WITHHELD] = f"/proc/{os.getpid()}/fd/{file}"
        try:
            yield
        finally:
            del os.environ[WITHHELD]
            os.close(file)
