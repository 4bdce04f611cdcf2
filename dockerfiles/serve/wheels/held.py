"""Prints what may not change when more is installed, a line each: the requirement, the SHA-256 of its list of files.

That is torch with torchvision and torchaudio, what runs on it (all that requires torch), and what these name one
version of, such as NVIDIA's libraries and Triton. What they name a range of may change within it.
"""

import hashlib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

TORCH = {"torch", "torchvision", "torchaudio"}
"""torchaudio does not require torch, whichever it is compiled against."""

installed: dict[str, Distribution] = {canonicalize_name(each.metadata["Name"]): each for each in distributions()}


def requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what is installed of the packages that one requires, with those of some of its extras."""
    for each in map(Requirement, installed[name].requires or []):
        marked = not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras | {""})
        if marked and canonicalize_name(each.name) in installed:
            yield each


held: set[tuple[str, frozenset[str]]] = set()
new = {
    (name, frozenset[str]())
    for name in installed
    if name in TORCH or "torch" in {canonicalize_name(each.name) for each in requirements(name, frozenset())}
}
while new:
    held |= new
    pinned = (
        each for pair in new for each in requirements(*pair) if {"==", "~="} & {one.operator for one in each.specifier}
    )
    new = {(canonicalize_name(each.name), frozenset(each.extras)) for each in pinned} - held

for name in sorted({name for name, _ in held}):
    files = installed[name].read_text("RECORD") or ""
    print(f"{name}=={installed[name].version} {hashlib.sha256(files.encode()).hexdigest()}")
