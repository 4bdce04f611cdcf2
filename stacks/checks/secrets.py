"""No secret is in clear text in a stack's file, which goes into git."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from stacks.config.model import is_secret, keys
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.errors import SlipwayError


@functools.cache
def secret_keys() -> tuple[str, ...]:
    """Return every key that holds a secret, as the models have them: ``registry.password``, ..."""
    return tuple(dict.fromkeys(key for key, field in keys(StackConfig) if is_secret(field)))


def check_clear_text(written: Mapping[str, Any], where: str) -> None:
    """Refuse a password, token or key in clear text in a stack's file.

    Args:
        written: the stack's keys as its file has them; what Pulumi encrypted is ``{secure: ...}`` there.
        where: names the stack in the error.

    Raises:
        SlipwayError: with the way to give it instead, and without the password.
    """
    for path in secret_keys():
        value: Any = written
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            key = f"{NAMESPACE}:{path}"
            raise SlipwayError(
                f"{where}: {key}: is in clear text in the stack's file: remove it there (and change it, if it "
                f"was committed), then `pulumi config set --secret --path {key}`"
            )
