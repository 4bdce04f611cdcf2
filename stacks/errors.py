"""The error a user sees: their mistake or their machine's state, in one line each, never a traceback."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable


class SlipwayError(Exception):
    """A mistake in what the user asked for; ``str()`` is what they read, one line for each mistake."""


def one_line(value: object, limit: int = 120) -> str:
    """Show ``value`` on one line, at most ``limit`` characters long.

    Control characters are escaped, and all that may be a credential in an address is starred: up to the last ``@``.
    """
    text = value if isinstance(value, str) else repr(value)
    text = re.sub(r"//.*@", "//***@", text, flags=re.DOTALL)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: object, limit: int = 120) -> str:
    """Show one side of a difference: the value on one line in quotes, or ``none`` where there is none."""
    return "none" if value is None else f"'{one_line(value, limit)}'"


def suggest(value: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest of ``allowed``, or nothing when none is near."""
    near = difflib.get_close_matches(value, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def builds_no(name: str, names: Collection[str]) -> str:
    """Say that a stack builds no image of that name, and which it builds."""
    return f"builds no image '{one_line(name)}'{suggest(name, names)}; it builds: {', '.join(names) or 'none'}"
