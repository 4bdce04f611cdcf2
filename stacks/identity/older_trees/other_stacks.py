"""Whether another stack of a commit built an image: after a rename of a stack's file, or where two have one image.

A tag has a commit and a suffix. So what another stack built counts only if the commit built nothing else under the
image's name and suffix, in whatever registry. So does what the stack itself built in another registry, or under another
suffix. Where nobody can tell, the image counts as another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from containers.errors import SlipwayError
from stacks.identity import git, older_trees
from stacks.identity.cache import Cache
from stacks.identity.older_trees import fingerprint_record as record

T = TypeVar("T")

_FILE: Final = re.compile(rf"{older_trees.STACKS}/Pulumi\.([^/]+)\.yaml")


class NamedImage(NamedTuple):
    """An image: its published name, its fingerprint, its tag without the revision, and the prefix of its name."""

    name: str
    fingerprint: str
    suffix: str
    repository: str


class OtherStacks:
    """The stacks besides ``stack`` in the commits before ``head``. ``reading`` is what makes fingerprints."""

    def __init__(self, stack: str, root: Path, head: str, reading: list[str]) -> None:
        self._stack, self._root, self._head, self._reading = stack, root, head, reading
        self._cache = Cache(root, "revisions")
        self._at_head = cache(self._images_at_head)
        self._names = cache(self._other_names)

    def built(self, image: NamedImage, commit: str, *, before: bool) -> bool:
        """Return whether another stack of a commit built the image, and none another one of its tag.

        ``before`` says that the stack itself had no image of the name. Then it may come from a stack that the last
        commit has no more, or not with such an image. Otherwise only one counts that has the image at the last commit.
        """
        wanted = {image.fingerprint, image.suffix, None} if before else {image.fingerprint, image.suffix}
        names = [name for name in self._names(commit) if (self._at_head().get(name) or {}).get(image.name) in wanted]
        if not names:
            return False
        recorded = record.at(commit, self._root)
        then = {name: recorded.get(name, {}) if recorded else self._prints(commit, name) for name in names}
        return image.fingerprint in {of.get(image.name) for of in then.values()} and self._alone(image, commit)

    def tagged(self, image: NamedImage, commit: str) -> bool:
        """Return whether no other image can have the tag of a commit for one that the stack itself built there."""
        if not self._names(commit):
            return True
        tag = f"{image.repository}/{image.name}:{image.suffix}"
        return self._references(commit).get(image.name) == tag or self._alone(image, commit)

    def _references(self, commit: str) -> Mapping[str, str]:
        return self._kept(
            ["references", self._stack], commit, lambda: older_trees.references(commit, self._root, self._stack)
        )

    def _other_names(self, commit: str) -> list[str]:
        """Return the names of a commit's other stacks; none if git cannot list them."""
        listing = git.git(self._root, "ls-tree", "-z", "--name-only", commit, f"{older_trees.STACKS}/") or ""
        names = (match[1] for match in map(_FILE.fullmatch, listing.split("\0")) if match)
        return [name for name in names if name != self._stack]

    def _images_at_head(self) -> Mapping[str, Mapping[str, str] | None]:
        """Return the suffixes of the last commit's images by stack and published name, or their fingerprints.

        They say where to look, and decide nothing. A checkout of Slipway has fingerprints in its record.
        """
        return record.at(self._head, self._root) or self._suffixes(self._head)

    def _prints(self, commit: str, stack: str) -> Mapping[str, str]:
        return self._kept(["of", stack], commit, lambda: dict(older_trees.published(commit, self._root, stack)))

    def _suffixes(self, commit: str) -> Mapping[str, Mapping[str, str] | None]:
        return self._kept(["suffixes"], commit, lambda: older_trees.suffixes(commit, self._root))

    def _kept(self, key: list[str], commit: str, read: Callable[[], Mapping[str, T]]) -> Mapping[str, T]:
        """Return what is read of a commit, from the cache if it is there; nothing where it cannot be read."""

        def readable() -> Mapping[str, T]:
            with suppress(SlipwayError):
                return read()
            return {}

        return self._cache.get([*key, *self._reading, commit], readable)

    def _alone(self, image: NamedImage, commit: str) -> bool:
        """Return whether all that a commit built under an image's name and suffix is the image."""
        prints = set[str | None]()
        for stack, suffixes in self._suffixes(commit).items():
            if suffixes is None:
                return False
            if suffixes.get(image.name) == image.suffix:
                prints.add(self._prints(commit, stack).get(image.name))
        return prints == {image.fingerprint}
