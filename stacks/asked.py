"""Run as a script in another tree: print what that tree's own ``stacks`` says of the stacks named, as JSON.

It uses the standard library and ``python -m stacks specs STACK``, which is what all trees have in common. One process
for all stacks: to start Python and load the models takes longer than to resolve a stack.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any


def told(stack: str) -> dict[str, Any]:
    """Return the stack's specs, ``{"specs": [...]}``, or why they cannot be told, ``{"error": ...}``."""
    said, mistakes = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(mistakes):
            from stacks.cli import main  # noqa: PLC0415 - it may be what is wrong

            status = main(["specs", stack])
        if status == 0:
            return {"specs": json.loads(said.getvalue())}
        why = f"it ended with {status}"
    except SystemExit as error:  # a command line that has no such command
        why = f"it ended with {error}"
    except Exception as error:  # whatever it is, it is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": mistakes.getvalue() or why}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({stack: told(stack) for stack in sys.argv[1:]}))
