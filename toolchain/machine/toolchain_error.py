"""The error that a user sees as one line."""

import re


class ToolchainError(Exception):
    """Something a user can act on. Its text is one line: the fault, its place, the value, the remedy."""


def without_credentials(text: str) -> str:
    """Return a text whose URLs have no `user:password@`: it is printed, or kept in a file. An ssh user is no secret."""
    return re.sub(r"(?<!ssh)://[^/\s]*@", "://", text)
