"""The error that a user sees as one line."""


class ToolchainError(Exception):
    """Something a user can act on. Its text is one line: what, where, the value, what to do."""
