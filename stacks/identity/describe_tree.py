"""A script that runs in another tree and prints the specs of the stacks named, as JSON, from that tree's own code.

It imports the standard library and the tree's ``stacks`` alone. It calls ``stacks.plan.describe``. In older trees
without that function, it runs the command ``python -m stacks specs STACK``. One process resolves all stacks, as
starting Python and loading the models takes longer than resolving a stack.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from typing import Any


def description(stack: str) -> dict[str, Any]:
    """Return the stack's specs, ``{"specs": [...]}``, or why the tree cannot describe it, ``{"error": ...}``."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            describe = getattr(importlib.import_module("stacks.plan"), "describe", _from_command)
            return {"specs": json.loads(json.dumps(describe(stack)))}
    except SystemExit as error:  # the tree has no such command
        return {"error": printed.getvalue() or f"it ended with {error}"}
    except Exception as error:  # any failure of the tree's code is its description
        is_message = type(error).__name__ == "SlipwayError"
        return {"error": str(error) if is_message else f"{type(error).__name__}: {error}"}


def _from_command(stack: str) -> Any:
    """Return what ``python -m stacks specs STACK`` prints."""
    main = importlib.import_module("stacks.cli").main
    output, mistakes = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(mistakes):
        status = main(["specs", stack])
    if status:
        raise SystemExit(mistakes.getvalue() or status)
    return json.loads(output.getvalue())


if __name__ == "__main__":
    sys.stdout.write(json.dumps({stack: description(stack) for stack in sys.argv[1:]}))
