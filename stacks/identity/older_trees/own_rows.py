"""What a commit builds with its own rows of tables, if these differ from today's.

Much of what tables say is kept in memory, so a process reads one set of rows. Another process of today's code reads a
commit's, as data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from containers.child_environment import LOCAL_SECONDS, child_environment
from containers.errors import SlipwayError, one_line, out_of_time
from stacks.identity import git
from stacks.identity.older_trees.fingerprint_record import Record
from stacks.places import CODE, TABLES

_FILES: Final = ("100644", "100755")
"""git's modes of files."""
_RUN: Final = """
import json, os, sys
output = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a flavor prints is no answer
rows, words = json.load(sys.stdin)
from stacks.versions import tables
tables.use_own_rows(rows)  # before anything else is imported, which may read a table
from stacks.identity.older_trees import with_rows
json.dump(with_rows(*words), output)
"""


def built(commit: str, root: Path, stack: str = "") -> Record:
    """Return the fingerprints of a commit's stacks, or of one; without those that its own flavors may make otherwise.

    Without a stack they are all fingerprints, as a record has them. Those of one stack are of its published names.

    Raises SlipwayError: git cannot read the commit, or the process fails.
    """
    rows = _rows(commit, root)
    if rows is None:
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN],
            input=json.dumps([rows, [commit, str(root.resolve()), stack]]),
            cwd=CODE,
            env=child_environment("stacks.rows") | {"PYTHONPATH": str(CODE)},
            capture_output=True,
            text=True,
            check=False,
            timeout=LOCAL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise SlipwayError(out_of_time(error.cmd, error.timeout)) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[-1]
        raise SlipwayError(f"the rows in {TABLES}/ of {commit[:7]} cannot be read: {one_line(reason)}")
    record: Record = json.loads(done.stdout)
    return record


def _rows(commit: str, root: Path) -> dict[str, str] | None:
    """Return the texts of a commit's files of rows, by name; None if one is a link, in a folder below, or no text."""
    rows: dict[str, str] = {}
    for entry in filter(None, os.fsdecode(git.read(root, "ls-tree", "-r", "-z", commit, f"{TABLES}/")).split("\0")):
        information, _, path = entry.partition("\t")
        mode, _, name = information.split()
        file = path.removeprefix(f"{TABLES}/")
        if mode not in _FILES or "/" in file:
            return None
        try:
            rows[file] = git.read(root, "cat-file", "blob", name).decode()
        except UnicodeDecodeError:
            return None
    return rows
