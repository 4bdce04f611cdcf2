"""Keeps this machine's own addresses away from a proxy that the user's environment names.

Pulumi, its language host and its providers speak to each other over loopback, and so do we to our registry.
"""

from collections.abc import Mapping
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
VARIABLES: Final = ("no_proxy", "NO_PROXY")
"""Some programs read the one, some the other: both get the entries of both."""
_OURS: Final = ",".join(LOOPBACK)
SHELL: Final = f"""\
[ "${{no_proxy-}}" = "${{NO_PROXY-}}" ] || no_proxy="${{no_proxy-}}${{no_proxy:+${{NO_PROXY:+,}}}}${{NO_PROXY-}}"
case "${{no_proxy-}}" in *"{_OURS}"* | "*") ;; *) no_proxy="{_OURS}${{no_proxy:+,$no_proxy}}" ;; esac
export no_proxy NO_PROXY="$no_proxy"
"""
"""What `past` does, for a POSIX shell; to run it again changes nothing."""


def past(environment: Mapping[str, str]) -> dict[str, str]:
    """Return VARIABLES as an environment should have them: its own entries, and LOOPBACK."""
    entries = [entry.strip() for name in VARIABLES for entry in environment.get(name, "").split(",")]
    # A `*` (no proxy for anybody) counts only where it stands alone.
    value = "*" if "*" in entries else ",".join(dict.fromkeys([*LOOPBACK, *filter(None, entries)]))
    return dict.fromkeys(VARIABLES, value)
