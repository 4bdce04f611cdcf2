"""Words of a shell: which are names of programs, and which change what a name stands for.

Source: POSIX.1-2017, Shell Command Language (2.3 Token Recognition, 2.14 Special Built-In Utilities).
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

ASSIGNMENT: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=.*", re.DOTALL)
_PLAIN: Final = re.compile(r"[\w./+:@%,][\w./+:@%,-]*\r?")
LOOKED_UP: Final = re.compile(
    r"PATH|CDPATH|ENV|BASH_ENV|IFS|HOME|PYTHON\w*|GUNICORN_CMD_ARGS|UVICORN_\w+|WEB_CONCURRENCY|PET_\w+|UV_WORKING_DIR\w*"
)
MOST_CHARACTERS: Final = 1000
"""Characters of a variable's value that is followed: a line may double them."""
_BUILT_IN: Final = re.compile(
    r"alias|bg|bind|break|builtin|caller|case|cd|chdir|command|compgen|complete|compopt|continue|coproc|declare|dirs"
    r"|disown|do|done|echo|elif|else|enable|esac|eval|exit|export|false|fc|fg|fi|for|function|getopts|hash|help"
    r"|history|if|in|jobs|kill|let|local|logout|mapfile|popd|printf|pushd|pwd|read|readarray|readonly|return|select"
    r"|set|shift|shopt|source|suspend|test|then|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until"
    r"|wait|while|[.:]"
)
"""Further words that a shell itself knows."""
CODE: Final = re.compile(r".*/(?:activate|[^/]+\.(?:ba)?sh)")
"""A file that is sourced as a part of an image. Others, as `.env`, may be the settings that a container is given."""
SHORT: Final = re.compile(r"[\d.]{1,4}s?")
"""What `sleep` waits for; a longer time, as `infinity`, is a start too."""
_OWN_FOLDER: Final = re.compile(
    r"""\$\(dirname (?:-- )?(?P<quote>"?)\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})(?P=quote)\)"""
    r"""|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"""
)
"""What a script calls its own folder by."""
_ENTERED: Final = re.compile(
    r"""\$\(cd (?:-- )?(?P<quote>"?)(?P<path>/[\w./+@,-]*)(?P=quote) (?:&?> ?/dev/null(?: 2>&1)? )?"""
    r"""(?:&&|;) pwd(?: -P)?\)"""
)
"""How a script makes a path of that."""


def is_name(word: str) -> bool:
    """Return whether a word is a plain name or path of a program, which a shell itself does not know."""
    return bool(_PLAIN.fullmatch(word)) and not _BUILT_IN.fullmatch(word)


def with_own_folder(text: str, name: str) -> str:
    """Return a script with the folder that it is in, by the path that it is started by, where it asks for it."""
    folder = posixpath.dirname(name) or "."
    if not _PLAIN.fullmatch(folder):
        return text
    return _ENTERED.sub(lambda match: posixpath.normpath(match["path"]), _OWN_FOLDER.sub(folder, text))
