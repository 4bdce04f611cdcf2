"""Run as a script in another tree: print what that tree's own ``stacks`` says of the stacks named, as JSON.

It uses the standard library and what the tree itself offers: ``stacks.plan.describe``, or, in trees from before it,
``python -m stacks specs STACK``. One process for all stacks: to start Python and load the models takes longer than to
resolve a stack.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from typing import Any


def answer(stack: str) -> dict[str, Any]:
    """Return the stack's specs, ``{"specs": [...]}``, or why the tree cannot describe it, ``{"error": ...}``."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            describe = getattr(importlib.import_module("stacks.plan"), "describe", _from_command)
            return {"specs": json.loads(json.dumps(describe(stack)))}
    except SystemExit as error:  # a command line without that command
        return {"error": printed.getvalue() or f"it ended with {error}"}
    except Exception as error:  # whatever it is, it is the answer
        known = type(error).__name__ == "SlipwayError"
        return {"error": str(error) if known else f"{type(error).__name__}: {error}"}


def _from_command(stack: str) -> Any:
    """Return what ``python -m stacks specs STACK`` prints, in a tree that has it."""
    main = importlib.import_module("stacks.cli").main
    output, mistakes = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(mistakes):
        status = main(["specs", stack])
    if status:
        raise SystemExit(mistakes.getvalue() or status)
    return json.loads(output.getvalue())


if __name__ == "__main__":
    sys.stdout.write(json.dumps({stack: answer(stack) for stack in sys.argv[1:]}))
