"""Words that may be secrets, in shown lines: a password in a script stays out of previews and logs."""

from __future__ import annotations

import re
from typing import Final

from containers.errors import one_line

_NAMES: Final = "TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIALS?|API_?KEY|ACCESS_KEY"
NAME: Final = re.compile(rf"(^|_)({_NAMES})(_|$)", re.IGNORECASE)
"""A variable's name, where its value is a secret."""

FILE: Final = re.compile(
    r"(?i)(^|/)(\.env[^/]*|\.netrc|\.npmrc|\.pypirc|\.pgpass|pip\.conf|credentials[^/]*|id_[a-z0-9]+|[^/]*\.(pem|key|p12|pfx))$"
)
"""The path of a file that is there for its secrets."""

HIDDEN: Final = "***"
"""What stands for a secret."""

_VALUE: Final = r"""(?:"(?:\\.|[^"\\])*"?|'[^']*'?|[^\s"'&;,)]+)"""
_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    (?P<name>
        (?<![A-Za-z0-9]) [\w-]*? (?:{_NAMES}|PRIVATE_?KEY|PASS|_PWD|AUTH|SIGNATURE|SIG) [\w-]*
        ["']? \s* (?:=>|:?=|:) \s*
      | --? [\w-]*? (?:{_NAMES}|PASS|USER) [\w-]* \s+ (?!-)
      | \b (?:ENV|ARG|machine) \s+ \w*? (?:{_NAMES}) \w* \s+
      | \b (?:password|login|bearer|basic) \s+ (?!-)
      | \s -u \s* (?=[^\s:]+:)
    )
    (?:(?:bearer|basic|token)\s+)? {_VALUE}"""
)
"""A secret after its name: of a variable, a key, an option, a query or a header."""
_KNOWN: Final = re.compile(
    r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|npm_|pypi-|sk-|xox[a-z]-|AKIA|ASIA|eyJ)[\w.=/+-]{8,}"
    r"|(?<![\w/.+-])(?=[\w+])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[0-9])[\w+/-]{24,}"
)
"""Tokens by their issuers' prefixes, and long words of base64. A checksum or a commit has no capitals, and is shown."""
_MOST_READ: Final = 500
"""Characters of a line that are looked at."""


def without_secrets(line: str, limit: int) -> str:
    """Return a line as it may be shown: what looks like a secret is starred, control characters are escaped.

    ``limit`` is the most characters of it.
    """
    starred = _KNOWN.sub(HIDDEN, _ASSIGNED.sub(rf"\g<name>{HIDDEN}", line[:_MOST_READ]))
    return one_line(starred, limit)
