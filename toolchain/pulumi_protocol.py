"""Pulumi's protocol without the SDK around it, for the programs that serve it."""

import importlib.util
import sys
from typing import Final

_PACKAGES: Final = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto")


def without_sdk() -> None:
    """Have the modules of ``pulumi.runtime.proto`` imported alone.

    The SDK takes 0.3 s of CPU time to import, at each start of a provider, which needs its messages only. To be called
    before they are imported, in a process that imports nothing else of the SDK. Such a process sends no traces to
    OpenTelemetry.

    Raises ModuleNotFoundError: the SDK is not installed.
    """
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"{name} is not installed")
        sys.modules[name] = importlib.util.module_from_spec(spec)
