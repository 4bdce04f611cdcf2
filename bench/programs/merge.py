"""What an update runs to merge an image's platforms: ``merge NAME:TAG PLATFORM=REFERENCE ...``."""

from __future__ import annotations

import sys

from containers.registry import index

name, *parts = sys.argv[1:]
index.push(index.of(dict(part.split("=", 1) for part in parts), None), name, None)
