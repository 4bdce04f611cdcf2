#!/usr/bin/env python3
"""torch, what it requires and what runs on it are as they were in the parent, file by file.

Their lists of files are the parent's, and each file is as its list has it. A list has no digest of itself.
"""

import base64
import hashlib
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path


def changed(package: Distribution) -> list[str]:
    """Return the files of a package that are gone, or not as its list has them."""
    names = []
    for file in package.files or []:
        path = Path(str(file.locate()))
        # Bytecode is made anew (common/layers/sealed), be it a wheel's own.
        listed = file.hash if file.suffix != ".pyc" else None
        if listed and not (path.is_file() and digest(path, listed.mode) == listed.value):
            names.append(str(file))
    return names


def digest(path: Path, algorithm: str) -> str:
    """Return a file's digest as a list of files has it."""
    with path.open("rb") as content:
        return base64.urlsafe_b64encode(hashlib.file_digest(content, algorithm).digest()).decode().rstrip("=")


held = [line.split() for line in Path("/media/held").read_text().splitlines()]
for requirement, sha256 in held:
    name, version = requirement.split("==")
    now = distribution(name)
    if now.version != version:
        sys.exit(f"{name}: the parent has {version}, and the image {now.version}")
    if hashlib.sha256((now.read_text("RECORD") or "").encode()).hexdigest() != sha256:
        sys.exit(f"{name} {version}: its files are not those of the parent")
    if files := changed(now):
        sys.exit(f"{name} {version}: {files[0]} is not that of the parent")
if "torch" not in {requirement.split("==")[0] for requirement, _ in held}:
    sys.exit("the parent has no torch")
print(f"{len(held)} packages are as they were")
