"""The Python runtime of the program, tuned for programs that declare many resources and then end."""

from __future__ import annotations

import gc
import os
from typing import Any

from pulumi.runtime.proto import engine_pb2
from pulumi.runtime.settings import get_engine

DEBUG_VARIABLE = "SLIPWAY_DEBUG"
"""Environment variable that, when set, keeps the SDK's debug lines for ``pulumi up --debug``."""


def reduce_overhead() -> None:
    """Turn off garbage collection and the SDK's debug lines.

    The SDK sends the engine 11 debug lines for an image with its component and waits for each (``pulumi/log.py``). The
    engine drops them unless run with ``--debug``. The collector searches for cycles among futures that all live until
    the program ends. A preview of 100 images takes 7.0 s of CPU with this and 8.9 s without (2026-11, 4 runs each).
    """
    gc.disable()
    engine: Any = get_engine()
    if engine is not None and not os.environ.get(DEBUG_VARIABLE):
        send = engine.Log
        engine.Log = lambda line: None if line.severity == engine_pb2.DEBUG else send(line)
