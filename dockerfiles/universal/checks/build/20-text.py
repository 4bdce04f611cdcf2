#!/usr/bin/env python3
"""torchtext is there at the version asked for, where one was."""

import os
import sys
from importlib.metadata import version

asked = os.environ["TORCH_TEXT_VERSION"]
if asked:
    import torchtext  # noqa: F401

    have = version("torchtext")
    if have.partition("+")[0] != asked:
        sys.exit(f"torchtext: asked for {asked}, but {have} is installed")
