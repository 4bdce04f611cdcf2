#!/usr/bin/env python3
"""torch, what it requires and what runs on it are as they were in the parent, file by file."""

import hashlib
import sys
from importlib.metadata import distribution
from pathlib import Path

held = [line.split() for line in Path("/media/held").read_text().splitlines()]
for requirement, digest in held:
    name, version = requirement.split("==")
    now = distribution(name)
    if now.version != version:
        sys.exit(f"{name}: the parent has {version}, and the image {now.version}")
    files = now.read_text("RECORD") or ""
    if hashlib.sha256(files.encode()).hexdigest() != digest:
        sys.exit(f"{name} {version}: its files are not those of the parent")
if "torch" not in {requirement.split("==")[0] for requirement, _ in held}:
    sys.exit("the parent has no torch")
print(f"{len(held)} packages are as they were")
