"""The Python runtime of the program, set for a program that declares many resources and then ends."""

from __future__ import annotations

import gc
import os
from typing import Any

from pulumi.runtime.proto import engine_pb2
from pulumi.runtime.settings import get_engine

DEBUG_VARIABLE = "SLIPWAY_DEBUG"
"""Environment variable that, when set, keeps the SDK's own debug lines for ``pulumi up --debug``."""


def hasten() -> None:
    """Spare what costs as much as all else in a stack of hundreds of images, and serves nobody.

    The SDK sends the engine a line at debug level for each step of each resource, 11 for an image with its component,
    and waits for each to be taken (``pulumi/log.py``); the engine drops them unless run with ``--debug``. And Python
    looks for reference cycles again and again among futures that all live until the program ends.
    """
    gc.disable()
    engine: Any = get_engine()
    if engine is not None and not os.environ.get(DEBUG_VARIABLE):
        send = engine.Log
        engine.Log = lambda line: None if line.severity == engine_pb2.DEBUG else send(line)
