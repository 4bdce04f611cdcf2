"""The files of two images compared, by laying their layers over each other without unpacking any.

Layers that both images have, in one order, need not be read for that: they stand in both stacks as *unread*. What only
they could tell is then left open: a file that just one image's own layers write may be new, or replace one of an unread
layer; and one that stands below an unread layer may be hidden by it. A difference of that kind is not ``certain``.
A folder that a layer writes is taken for one that was there: archives name the folders on the way to each file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from oci.layers.layer import Entry, Index

_MOST_LINKS: Final = 40
"""Symbolic links that one path may lead through, as in Linux."""

Stack = Sequence[Index | None]
"""An image's layers, the lowest first; None for an unread one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two images differ.

    ``before`` and ``after`` are what stands there; None where nothing does, and where it is not known what. A path
    that ends in ``/`` is a folder of which content that unread layers have is in one image only.
    """

    path: str
    change: Literal["added", "removed", "changed"]
    before: Entry | None
    after: Entry | None
    certain: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it; sizes in bytes, modes as text in octal."""
        return {
            "path": f"/{self.path}",
            "change": self.change,
            "certain": self.certain,
            "before": _said(self.before),
            "after": _said(self.after),
        }


def _said(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    uid, gid = entry.owner
    said = {"kind": entry.kind, "mode": f"{entry.mode:04o}", "uid": uid, "gid": gid, "size": entry.size}
    return said | ({"target": entry.target} if entry.target else {})


@dataclass(slots=True)
class _Node:
    """What is known of one name.

    ``entry`` is None for a folder that is known by what is in it alone, and, with ``gone``, for what was removed.
    ``place`` is the layer that said so, and ``cut`` the last layer that hid all that lower ones have below it.
    ``children`` go by their whole paths, the very strings that the layers' indexes have.
    """

    entry: Entry | None = None
    gone: bool = False
    place: int = -1
    cut: int = -1
    children: dict[str, _Node] | None = None

    @property
    def below(self) -> dict[str, _Node]:
        """What is in it, to be changed; most names are files', and have nothing."""
        if self.children is None:
            self.children = {}
        return self.children

    @property
    def file(self) -> Entry | None:
        """What stands here, unless it is a folder."""
        return self.entry if self.entry and self.entry.kind != "directory" else None

    @property
    def folder(self) -> bool:
        """Whether this is known to be a folder."""
        return not self.gone and self.file is None


class FileTree:
    """What a stack of layers shows."""

    def __init__(self, layers: Stack) -> None:
        self.root = _Node()
        self.unread = [place for place, index in enumerate(layers) if index is None]
        for place, index in enumerate(layers):
            if index is not None:
                self._lay(index, place)

    def _lay(self, index: Index, place: int) -> None:
        for path in sorted(index.opaque):  # a folder before those in it, which only their own mark may name
            _, node = self._folder(path, place)
            node.children = None
            node.cut = place
        for path in index.gone:
            parent, at = self._parent(path, place)
            parent.below[at] = _Node(gone=True, place=place, cut=place)
        for path, entry in index.entries.items():
            parent, at = self._parent(path, place)
            there = parent.below.get(at)
            if entry.kind == "directory" and (there is None or there.folder):
                there = parent.below.setdefault(at, _Node())
                there.entry, there.place = entry, place
            else:
                parent.below[at] = _Node(self._named(entry), place=place, cut=place)

    def _named(self, entry: Entry) -> Entry:
        """Return the file that a hard link to a lower layer's file names, if that layer is read."""
        if entry.kind != "hardlink":
            return entry
        path, node = "", self.root
        for part in entry.target.split("/"):
            path = _joined(path, part)
            if path not in (node.children or {}):
                return entry
            node = node.below[path]
        return node.file or entry

    def _parent(self, path: str, place: int) -> tuple[_Node, str]:
        """Return the node of the folder that a path is in, and the path once links on the way are followed."""
        folder, _, name = path.rpartition("/")
        found, node = self._folder(folder, place)
        return node, path if found == folder else _joined(found, name)

    def _folder(self, path: str, place: int) -> tuple[str, _Node]:
        """Return a folder's path and node, which is made where there is none; links on the way are followed."""
        way = [("", self.root)]
        left = path.split("/")[::-1]
        links = 0
        while left:
            part = left.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                way = way[:-1] or way
                continue
            folder, node = way[-1]
            at = _joined(folder, part)
            child = node.below.get(at)
            if child and child.entry and child.entry.kind == "symlink" and links < _MOST_LINKS:
                links += 1
                if child.entry.target.startswith("/"):
                    way = way[:1]
                left.extend(reversed(child.entry.target.split("/")))
                continue
            if child is None:
                child = node.below[at] = _Node(place=place)
            elif not child.folder:
                child = node.below[at] = _Node(place=place, cut=place)
            way.append((at, child))
        return way[-1]

    def paths(self) -> Iterator[tuple[str, Entry | None]]:
        """Yield each path with what stands there, folders before what is in them; None for a folder of no own layer."""
        waiting = [self.root]
        while waiting:
            for path, child in sorted((waiting.pop().children or {}).items()):
                if not child.gone:
                    yield path, child.entry
                    waiting.append(child)

    def shows(self, floor: int) -> int:
        """Return how many unread layers may show where all up to ``floor`` are hidden."""
        return len(self.unread) - bisect_right(self.unread, floor)

    def sure(self, node: _Node) -> bool:
        """Say whether no unread layer may hide a node."""
        return not self.unread or node.place > self.unread[-1]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def differences(before: FileTree, after: FileTree) -> list[Difference]:
    """Return where two images differ in anything but folders and times, by path.

    Both have the same unread layers, in the same order.
    """
    return sorted(_below(before, after, "", before.root, after.root, -1, -1), key=lambda found: found.path)


def _below(
    before: FileTree, after: FileTree, path: str, old: _Node | None, new: _Node | None, old_floor: int, new_floor: int
) -> Iterator[Difference]:
    """Yield what differs at a path and below; ``floor`` is the layer up to which all is hidden there."""
    same_unread = before.shows(old_floor) == after.shows(new_floor)
    found = _at(before, after, path, old, new, old_floor, new_floor) if path else None
    if found:
        yield found
    old_floor, new_floor = max(old_floor, old.cut if old else -1), max(new_floor, new.cut if new else -1)
    lost = before.shows(old_floor) - after.shows(new_floor)
    if lost and same_unread and not found:
        yield Difference(f"{path}/", "removed" if lost > 0 else "added", None, None, certain=False)
    children = ((old and old.children) or {}, (new and new.children) or {})
    for below in {**children[0], **children[1]}:
        ours, theirs = (there.get(below) for there in children)
        yield from _below(before, after, below, ours, theirs, old_floor, new_floor)


def _at(
    before: FileTree, after: FileTree, path: str, old: _Node | None, new: _Node | None, old_floor: int, new_floor: int
) -> Difference | None:
    """Return what differs at a path itself."""
    was, now = old.file if old else None, new.file if new else None
    # Where a layer says nothing of a path, an unread one may have something there.
    sure = (before.sure(old) if old else not before.shows(old_floor)) and (
        after.sure(new) if new else not after.shows(new_floor)
    )
    if was and now:
        unknown = "hardlink" in {was.kind, now.kind}
        return Difference(path, "changed", was, now, sure and not unknown) if was != now or unknown else None
    if was or now:
        return Difference(path, "removed" if was else "added", was, now, sure)
    if folder := _folders(path, old, new, sure):
        return folder
    if old and old.gone and new is None and after.shows(new_floor):
        return Difference(path, "added", None, None, certain=False)
    if new and new.gone and old is None and before.shows(old_floor):
        return Difference(path, "removed", None, None, certain=False)
    return None


def _folders(path: str, old: _Node | None, new: _Node | None, sure: bool) -> Difference | None:
    """Return how a folder itself differs: in its mode and owner, or as a new one that all may write to."""
    was, now = old.entry if old else None, new.entry if new else None
    if was and now:
        return Difference(path, "changed", was, now, sure) if was != now else None
    if now and now.writable and (old is None or old.gone):
        return Difference(path, "added", None, now, sure)
    return None
