"""What common commands do to a container before its program starts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
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
    options = _STARTS.get(command)
    return options is not None and any(map(options.fullmatch, arguments[:1] if command == "command" else arguments))


def makes(command: str, arguments: Sequence[str], *, cut: bool) -> bool:
    """Return whether a command, or the one that it runs for each file, may make a program of a file that is not known.

    ``cut`` is whether it has unknown arguments.
    """
    if command in {"chmod", "tee", "touch"}:
        return cut and all(map(_RUNNABLE.fullmatch, arguments[:1] if command == "chmod" else ()))
    if cut and command in {"chown", "chgrp", "sed"}:
        return command != "sed" or any(each.startswith("-i") for each in arguments)
    names = [command, *(arguments if command in {"find", "xargs"} else ())]
    return "chmod" in names[1:] or any(posixpath.basename(name) in _MAKES for name in names)


def changed_files(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the files that a command changes: they follow a mode, a user or a text, which an option may have."""
    if command not in _CHANGES or (command == "sed" and not any(each.startswith("-i") for each in arguments)):
        return []
    is_first = command in {"tee", "touch"} or any(each.startswith(("--", "-e", "-f")) for each in arguments)
    return [each for each in arguments if not each.startswith("-")][not is_first :]


def placed(path: str, state: State) -> str:
    """Return the path of a changed file as from the root; the root itself where the folder is not known."""
    if state.loose and not path.startswith("/"):
        return "/"
    return posixpath.normpath(posixpath.join("/", state.folder, path))


def may_be_made(words: Sequence[str | None], about: str, state: State) -> bool:
    """Return whether changes of files may let a program start: they are of its words, or of what it is refused for."""
    programs = {about, *words[:1], *words[2:]}  # the second word may be a user, as of `gosu`
    return any(
        _changes_program(path, word, state, is_program=word in programs)
        for path in state.changed
        for word in (about, *words)
        if word
    )


def _changes_program(path: str, word: str, state: State, *, is_program: bool) -> bool:
    """Return whether a change of a file or folder may be one of a program."""
    name, place = posixpath.basename(path), posixpath.join("/", state.folder, word)
    if "/" in word or "." in word:
        return not name or name in place.split("/")
    return not name or path.endswith("bin") or path == place or (is_program and name == word)
