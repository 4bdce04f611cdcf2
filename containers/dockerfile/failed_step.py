"""The place of a build's failed step in its Dockerfile, from the error of the engine, which has the step's command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from containers.dockerfile import instructions
from containers.errors import SlipwayError, one_line

ORIGINS: Final = "origins"
"""The folder beside that of the contexts. A context whose Dockerfile was made of another one has a file of its name
there, with the path of that one."""

_COMMAND: Final = re.compile(
    r"executor failed running \[(?P<old>.*)\]: |process (?P<new>\".*\") did not complete successfully: ", re.DOTALL
)
"""BuildKit's error of a failed ``RUN``: until 0.10, and since then with the command as Go quotes it (``%q``)."""


def place(error: str, folder: Path, dockerfile: Path) -> str:
    """Return the Dockerfile and the line of the ``RUN`` that failed, as ``path:line: ``; empty where nobody knows.

    ``folder`` is the build's context, and ``dockerfile`` what the engine got.
    """
    match = _COMMAND.search(error)
    if match is None:
        return ""
    try:
        origin = folder.parent.with_name(ORIGINS) / folder.name
        source = Path(origin.read_text(encoding="utf-8")) if origin.is_file() else dockerfile
        read = instructions.parse(source.read_bytes(), str(source))
        command = _plain(match["old"] if match["new"] is None else json.loads(match["new"]))
    except (OSError, SlipwayError, ValueError):
        return ""
    runs = [(_plain(_command(each)), each.line) for each in read.instructions if each.keyword == "RUN"]
    fitting = [(len(run), line) for run, line in runs if run and command.endswith(run)]  # after the shell and its flags
    lines = [line for length, line in fitting if length == max(fitting)[0]]
    path = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
    return f"{one_line(str(path))}:{' or '.join(map(str, lines))}: " if lines else ""


def _command(run: instructions.Instruction) -> str:
    if run.heredocs and not run.rest.partition("<<")[0].strip():
        return "".join(run.heredocs[0].splitlines(keepends=True)[:-1])
    words = instructions.json_array(run.rest)
    return run.rest if words is None else " ".join(words)


def _plain(text: str) -> str:
    return " ".join(text.split())
