"""What common commands do to a container before its program starts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Final

from containers.starting.shell.script_state import State


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


QUIET: Final = _names(
    "echo printf umask ulimit shopt type hash alias wait pwd command let (( trap getopts read unset mapfile readarray "
    "sleep id date hostname cat chown chmod mkdir rm ls stat find sed awk grep tr cut head tail sort wc basename "
    "dirname tee touch env whoami getent nc pg_isready nproc df free uname nvidia-smi which"
)
"""Commands that neither are what a container is for nor make a program."""
_MAKES: Final = _names(
    "cp mv ln install tar unzip gunzip gzip zstd xz dd rsync curl wget pip pip3 uv poetry pdm conda mamba npm yarn "
    "pnpm bundle gem composer git apt apt-get apk dnf microdnf yum dpkg rpm make cmake ninja gcc g++ cc go cargo javac "
    "mvn busybox aws gsutil gcloud az mount eval envsubst"
)
"""Commands that may make the program which is started later."""
_CHANGES: Final = {"chmod", "chown", "chgrp", "sed", "tee", "touch"}
"""Commands that change files: their rights, or their text."""
_RUNNABLE: Final = re.compile(r".*[+=].*x.*|[0-7]*[1357]")
"""Modes by which `chmod` lets a user run a file."""
_STARTS: Final = {
    "env": re.compile("(?!-[0u]).+", re.DOTALL),
    "command": re.compile("(?!-[vV]).+", re.DOTALL),
    "tail": re.compile(r"-\w*[fF].*|--(?:follow|retry).*"),
    "nc": re.compile(r"-\w*l.*"),
}
"""Quiet commands that are not so with such an argument: they start another one, or do not end."""


def starts(command: str, arguments: Sequence[str]) -> bool:
    """Return whether a quiet command starts another one, or does not end."""
    starts = _STARTS.get(command)
    return starts is not None and any(map(starts.fullmatch, arguments[:1] if command == "command" else arguments))


def makes(command: str, arguments: Sequence[str], *, cut: bool) -> bool:
    """Return whether a command, or the one that it runs for each file, may make a program of a file that is not known.

    ``cut`` is whether it has unknown arguments.
    """
    if command in {"chmod", "tee", "touch"}:
        return cut and all(map(_RUNNABLE.fullmatch, arguments[:1] if command == "chmod" else ()))
    names = [command, *(arguments if command in {"find", "xargs"} else ())]
    return "chmod" in names[1:] or any(posixpath.basename(name) in _MAKES for name in names)


def changed_files(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the files that a command changes: they follow a mode, a user or a text."""
    if command not in _CHANGES or (command == "sed" and not any(each.startswith("-i") for each in arguments)):
        return []
    return [each for each in arguments if not each.startswith("-")][command not in {"tee", "touch"} :]


def may_be_made(words: Sequence[str | None], state: State, is_there: Callable[[str], bool]) -> bool:
    """Return whether the lines before may have made a program, or a file for it to run."""
    program = str(words[0])
    if state.ran and "/" in program and not is_there(posixpath.join(state.folder, program)):
        return True
    return any(_changes_program(path.rstrip("/"), word) for path in state.changed for word in words if word)


def _changes_program(path: str, word: str) -> bool:
    """Return whether a change of a file or folder may be one of a program."""
    folder, name = posixpath.split(path)
    if "/" in word:
        return f"{word}/".startswith(f"{path}/") or posixpath.basename(word) == name
    return path.endswith("bin") or (folder.endswith("bin") and name == word)
