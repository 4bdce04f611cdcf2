"""Words that may be secrets, in shown lines: a password in a script stays out of previews and logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
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

_SHOWN: Final = r"TOKEN|SECRET|CREDENTIALS?|(?:API|ACCESS|PRIVATE)[_-]?KEY|PASS|_PWD|AUTH|COOKIE|SIGNATURE|SIG"
"""What the name of a shown value has in it, where that is a secret: more than a variable's name."""
_VALUE: Final = r"""(?:\"{3}|'{3}|"(?:\\.|[^"\\])*"?|'[^']*'?|[^\s"'&;,)]+)"""
_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    (?P<name>
        (?: (?<![A-Za-z0-9]) [\w-]{{0,99}}? (?:{_SHOWN}) [\w-]*+ | \b PWD ) ["']? \s* (?:=>|:?=|:) \s*
      | (?<![\w-]) --? [\w-]{{0,99}}? (?:{_NAMES}|PASS|USER) [\w-]*+ \s+ (?!-)
      | \b (?:ENV|ARG|machine) \s+ \w{{0,99}}? (?:{_NAMES}) \w*+ \s+
      | \b (?:password|passphrase|login|bearer|basic) \s+ (?!-)
      | \b (?:sshpass|mysql\w*|mariadb\w*) \b [^|&;]*? \s -p \s*
      | \s -u \s* (?=[^\s:]+:)
    )
    (?:(?:bearer|basic|token)\s+)? (?P<value> (?<=cookie:\x20) [^"']+ | {_VALUE})"""
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


_MAY_BEGIN: Final = re.compile(rf"(?i){_SHOWN}|PWD|BEGIN|<<|bearer|basic|login")
"""What a line has that begins a secret of several lines; to look for it costs little."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_HEREDOC: Final = re.compile(r"""<<[-~]?\s*["']?(?P<end>\w+)""")
_OF_SECRET: Final = re.compile(rf"(?i){_SHOWN}")
_QUOTE: Final = re.compile("\"{3}|'{3}|[\"']")
_CLOSED: Final = re.compile(r"""\"(?:\\.|[^\"\\])*\"|'[^']*'""")
_VALUE_FOLLOWS: Final = re.compile(
    rf"""(?ix)
    (?:{_SHOWN}|\bPWD) [\w-]*+
    (?: ["']? \s* (?:=>|:?=|:) \s* (?:[|>][+-]?[0-9]*)? [\[({{$]* \s* (?P<marked>\\?) | \s+ (?P<option>\\)) $"""
)
"""A name at the end of a line; its value is on the next one."""


def continued_secrets(lines: Sequence[str]) -> list[bool]:
    """Return for each line of a text whether it goes on with a secret that an earlier line began.

    That is a value in quotes, a block below its name, a value after a line's continuation, a private key, and a
    heredoc of a file with secrets.
    """
    result: list[bool] = []
    last: str | None = None
    block = -1
    for number, line in enumerate(lines):
        inside = last is not None or (block >= 0 and (not line.strip() or _indent(line) > block))
        if last is not None:
            last = None if re.search(last, line) else last
        elif not inside:
            block = -1
        result.append(inside)
        if not inside and _MAY_BEGIN.search(line):
            last, block = _begun(line[:_MOST_READ], line[_MOST_READ:], "".join(lines[number + 1 : number + 2]))
    return result


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _begun(line: str, rest: str, following: str) -> tuple[str | None, int]:
    """Return a pattern of a secret's last line, or the indentation that its lines exceed."""
    if _PRIVATE_KEY.search(line):
        return None if "-----END" in line else "-----END", -1
    heredoc = _HEREDOC.search(line)
    if heredoc and any(FILE.search(word) or _OF_SECRET.search(word) for word in re.split(r"[\s\"'<>]", line)):
        return rf"^\s*{heredoc['end']}\s*$", -1
    for match in _ASSIGNED.finditer(line):
        quote = _QUOTE.match(match["value"])
        if quote and not _CLOSED.fullmatch(match["value"]) and quote[0] not in rest:
            return quote[0], -1
    follows = _VALUE_FOLLOWS.search(line)
    if not follows or rest:
        return None, -1
    if follows["marked"] or follows["option"]:
        return r"(?<!\\)$", -1
    if re.match(r"""\s*["']""", following):
        return "", -1
    return None, _indent(line)
