"""No secret is in clear text in a stack's file, which goes into git, or in the state."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from containers.errors import SlipwayError, one_line
from stacks.config.model import ANY_NAME, is_secret, keys
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE

_PASSED: Final = ("runners", "arc", "values")
"""The key whose values go to Helm charts as they are."""

_HIDDEN: Final = ("runners.github.app.id", "runners.github.app.installation")
"""Keys that may be secrets, and need not: the state has them encrypted, with the App's key."""


@functools.cache
def secret_keys() -> tuple[str, ...]:
    """Return every key that holds a secret, such as ``registry.password`` and ``buildSecrets.*.password``."""
    return tuple(dict.fromkeys(key for key, field in keys(StackConfig) if is_secret(field)))


def check_clear_text(written: Mapping[str, Any], where: str) -> None:
    """Refuse a password, token or key in clear text in a stack's file, and a secret that the state would have so.

    A program gets secrets decrypted: only the file says that a value is one. ``written`` are the stack's keys as its
    file has them; what Pulumi encrypted is ``{secure: ...}`` there. ``where`` names the stack in the error.

    Raises SlipwayError: with the way to give it instead, and without the password.
    """
    for path in secret_keys():
        for path_below in _clear_text(written, path.split(".")):
            key = f"{NAMESPACE}:{path_below.removeprefix('.')}"
            quoted = f"'{key}'" if '"' in key else key
            raise SlipwayError(
                f"{where}: {key}: is in clear text in the stack's file: remove it there (and change it, if it "
                f"was committed), then `pulumi config set --secret --path {quoted}`"
            )
    kept = (*secret_keys(), *_HIDDEN)
    for parts in _encrypted(written):
        if any(_matches(parts, key.split(".")) for key in kept):
            continue
        instead = "name a secret of the cluster" if parts[: len(_PASSED)] == _PASSED else "write it in clear text"
        raise SlipwayError(
            f"{where}: {NAMESPACE}:{'.'.join(map(one_line, parts))}: is a secret, which the state would hold in clear "
            f"text, as all but {', '.join(kept)}: {instead}, or leave it out"
        )


def _encrypted(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the keys at or below ``above``, by their parts, whose value Pulumi encrypted."""
    if isinstance(value, Mapping) and set(value) == {"secure"} and above:
        yield above
        return
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, Mapping) else ()
    for name, item in items:
        yield from _encrypted(item, (*above, str(name)))


def _matches(parts: Sequence[str], key: Sequence[str]) -> bool:
    return len(parts) == len(key) and all(name in {part, ANY_NAME} for part, name in zip(parts, key, strict=True))


def _clear_text(value: Any, parts: Sequence[str]) -> Iterator[str]:
    """Yield the keys below ``value``, as Pulumi writes a path, that match ``parts`` and hold text."""
    if not parts:
        yield from [""] if isinstance(value, str) else ()
    elif isinstance(value, Mapping):
        names = list(value) if parts[0] == ANY_NAME else [name for name in parts[:1] if name in value]
        for name in names:
            key = f'["{name}"]' if "." in name else f".{name}"
            yield from (f"{key}{rest}" for rest in _clear_text(value[name], parts[1:]))
