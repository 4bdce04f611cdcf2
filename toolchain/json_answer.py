"""`--json`: standard output has one JSON document and nothing else. What steps print goes to standard error."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

_outputs: list[int] = []


@contextmanager
def apart() -> Iterator[None]:
    """Let everything that is printed in the block go to standard error, of programs too, but for :func:`give`."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    _outputs.append(output)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _outputs.remove(output)
        os.dup2(output, 1)
        os.close(output)


def give(document: Any) -> None:
    """Write the document to standard output, within :func:`apart`."""
    with os.fdopen(os.dup(_outputs[-1]), "w", encoding="utf-8") as file:
        print(json.dumps(document, indent=2), file=file)
