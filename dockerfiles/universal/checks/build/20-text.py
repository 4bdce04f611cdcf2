#!/usr/bin/env python3
"""torchtext is there at the version asked for, where one was."""

import os
import sys
from importlib.metadata import version

release = os.environ["TORCH_TEXT_VERSION"]
if release:
    import torchtext  # noqa: F401

    have = version("torchtext")
    if have.partition("+")[0] != release:
        sys.exit(f"torchtext: asked for {release}, but {have} is installed")
