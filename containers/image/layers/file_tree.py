"""The file system of stacked layers, and the differences between two, without unpacking a layer.

Layers that both images share in the same order can stay *unread*. Then some differences are not ``certain``: a file in
one image's own layers may be new or replace one of an unread layer, and a file below an unread layer may be hidden.
A folder that a layer writes counts as existing before: archives name the parent folders of each file.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from containers.image.layers.layer import Entry, LayerIndex

_MOST_LINKS: Final = 40
"""Symbolic links that the resolution of one path may follow, as in Linux."""

Stack = Sequence[LayerIndex | None]
"""The layers of an image, the lowest first; None for an unread one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two images differ.

    ``before`` and ``after`` are its entries; None for a missing or unknown one. A path that ends in ``/`` is a folder
    with content in unread layers of one image only.
    """

    path: str
    change: Literal["added", "removed", "changed"]
    before: Entry | None
    after: Entry | None
    certain: bool

    def as_json(self) -> dict[str, Any]:
        """Return the difference as JSON; sizes in bytes, modes as octal text."""
        return {
            "path": f"/{self.path}",
            "change": self.change,
            "certain": self.certain,
            "before": _as_json(self.before),
            "after": _as_json(self.after),
        }


class Trace(NamedTuple):
    """A path after following links, the last one too: its end, or the place of the break.

    ``folders`` are those on the way, and ``path`` is that of the file, or of the place that ``problem`` is about. The
    entry is None for a folder that no layer writes.
    """

    path: str
    entry: Entry | None
    folders: tuple[tuple[str, Entry | None], ...]
    problem: Literal["", "does not exist", "is no folder", "is a cycle of links"] = ""


def _as_json(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    uid, gid = entry.owner
    values = {"kind": entry.kind, "mode": f"{entry.mode:04o}", "uid": uid, "gid": gid, "size": entry.size}
    return values | ({"target": entry.target} if entry.target else {})


@dataclass(slots=True)
class _Node:
    """One path.

    ``entry`` is None for a removed path, and for a folder that no layer writes itself. ``place`` is the number of the
    entry's layer, ``cut`` that of the last layer that hid the content of lower ones. ``children`` are keyed by their
    whole paths, the strings of the layers' indexes.
    """

    entry: Entry | None = None
    removed: bool = False
    place: int = -1
    cut: int = -1
    children: dict[str, _Node] | None = None

    @property
    def below(self) -> dict[str, _Node]:
        """The children, to be modified; most nodes are files and have none."""
        if self.children is None:
            self.children = {}
        return self.children

    @property
    def file(self) -> Entry | None:
        """The entry, unless it is a folder."""
        return self.entry if self.entry and self.entry.kind != "directory" else None

    @property
    def folder(self) -> bool:
        """Whether this is a folder."""
        return not self.removed and self.file is None


class FileTree:
    """The files of stacked layers.

    ``hidden`` are the files that later layers replace or remove: the number of the layer that wrote each, its path and
    its entry. ``broken`` are hard links to no file that is there before them; an unread layer may have it.
    """

    def __init__(self, layers: Stack) -> None:
        self.root = _Node()
        self._last = "", self.root
        self.hidden: list[tuple[int, str, Entry]] = []
        self.broken: list[Entry] = []
        self.unread = [place for place, index in enumerate(layers) if index is None]
        for place, index in enumerate(layers):
            if index is not None:
                self._add(index, place)

    def _add(self, index: LayerIndex, place: int) -> None:
        for path in sorted(index.opaque):  # outer folders first: only its own marker may mention an inner one
            _, node = self._folder(path, place)
            self._hide_below(node)
            node.children = None
            node.cut = place
        self._last = "", self.root
        for path in index.removed:
            parent, key = self._parent(path, place)
            self._hide(key, parent.below.get(key))
            parent.below[key] = _Node(removed=True, place=place, cut=place)
        for path, entry in index.entries.items():
            parent, key = self._parent(path, place)
            existing = parent.below.get(key)
            if not (existing and existing.folder and entry.kind == "directory"):
                self._hide(key, existing)
            if entry.kind == "directory" and (existing is None or existing.folder):
                folder = parent.below.setdefault(key, _Node())
                folder.entry, folder.place = entry, place
            else:
                parent.below[key] = _Node(self._resolved(entry), place=place, cut=place)

    def _hide(self, path: str, node: _Node | None) -> None:
        """Remember that a later layer hides the path and all below."""
        if node is not None:
            if node.file:
                self.hidden.append((node.place, path, node.file))
            self._hide_below(node)

    def _hide_below(self, node: _Node) -> None:
        pending = [node]
        while pending:
            for path, child in (pending.pop().children or {}).items():
                if child.file:
                    self.hidden.append((child.place, path, child.file))
                pending.append(child)

    def _resolved(self, entry: Entry) -> Entry:
        """Return the target of a hard link to a file of a lower layer, if that layer is read."""
        if entry.kind != "hardlink":
            return entry
        trace = self.trace(entry.target, follow=False)
        if trace.problem or trace.entry is None or trace.entry.kind == "directory":
            self.broken.append(entry)
            return entry
        return trace.entry

    def _parent(self, path: str, place: int) -> tuple[_Node, str]:
        """Return the node of a path's folder, and the path after following symbolic links."""
        folder, name = posixpath.split(path)
        if folder == self._last[0]:  # as for most paths of an archive; nothing below a folder moves it
            return self._last[1], path
        resolved, node = self._folder(folder, place)
        self._last = (resolved, node) if resolved == folder else ("", self.root)
        return node, path if resolved == folder else _joined(resolved, name)

    def _folder(self, path: str, place: int) -> tuple[str, _Node]:
        """Return a folder's path and node after following symbolic links; missing folders are created."""
        ancestors = [("", self.root)]
        remaining = _steps(path)
        links = 0
        while remaining:
            part = remaining.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                ancestors = ancestors[:-1] or ancestors
                continue
            folder, node = ancestors[-1]
            key = _joined(folder, part)
            child = node.below.get(key)
            if child and child.entry and child.entry.kind == "symlink" and links < _MOST_LINKS:
                links += 1
                if child.entry.target.startswith("/"):
                    ancestors = ancestors[:1]
                remaining += _steps(child.entry.target)
                continue
            if child is None:
                child = node.below[key] = _Node(place=place)
            elif not child.folder:
                self._hide(key, child)
                child = node.below[key] = _Node(place=place, cut=place)
            ancestors.append((key, child))
        return ancestors[-1]

    def paths(self) -> Iterator[tuple[str, Entry | None]]:
        """Yield each path and its entry, folders before their content; None for a folder that no layer writes."""
        pending = [self.root]
        while pending:
            for path, child in sorted((pending.pop().children or {}).items()):
                if not child.removed:
                    yield path, child.entry
                    pending.append(child)

    def find(self, path: str) -> tuple[str, Entry | None] | None:
        """Return the path of a file or folder after following symbolic links, the last one too, and its entry.

        The entry is None for a folder that no layer writes. None for a path that does not exist, or a cycle of links.
        """
        trace = self.trace(path)
        return None if trace.problem else (trace.path, trace.entry)

    def trace(self, path: str, *, follow: bool = True) -> Trace:
        """Follow a path from the root, its last part too if that is a link to ``follow``."""
        ancestors = [("", self.root)]
        passed: dict[str, Entry | None] = {}
        remaining = _steps(path)
        links = 0
        while remaining:
            part = remaining.pop()
            if part in {"", "."}:
                continue
            folder, node = ancestors[-1]
            if not node.folder:
                return Trace(folder, node.entry, tuple(passed.items()), "is no folder")
            passed[folder] = node.entry
            if part == "..":
                ancestors = ancestors[:-1] or ancestors
                continue
            key = _joined(folder, part)
            child = (node.children or {}).get(key)
            if child is None or child.removed:
                missing = "/".join((key, *reversed(remaining)))
                return Trace(missing, None, tuple(passed.items()), "does not exist")
            if child.entry and child.entry.kind == "symlink" and (follow or remaining):
                links += 1
                if links > _MOST_LINKS:
                    return Trace(key, child.entry, tuple(passed.items()), "is a cycle of links")
                if child.entry.target.startswith("/"):
                    ancestors = ancestors[:1]
                remaining += _steps(child.entry.target)
                continue
            ancestors.append((key, child))
        return Trace(ancestors[-1][0], ancestors[-1][1].entry, tuple(passed.items()))

    def unread_above(self, floor: int) -> int:
        """Return the number of unread layers above layer ``floor``."""
        return len(self.unread) - bisect_right(self.unread, floor)

    def certain(self, node: _Node) -> bool:
        """Return whether no unread layer can hide a node."""
        return not self.unread or node.place > self.unread[-1]


def _steps(path: str) -> list[str]:
    """Return the parts of a path, the first one last."""
    return path.split("/")[::-1]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def differences(before: FileTree, after: FileTree) -> list[Difference]:
    """Return the differences between two images, sorted by path; modification times do not count.

    Both have the same unread layers, in the same order.
    """
    return sorted(_differences(before, after), key=lambda difference: difference.path)


def _differences(before: FileTree, after: FileTree) -> Iterator[Difference]:
    """Yield the differences; the floors are the layers up to which everything is hidden at a path."""
    pending: list[tuple[str, _Node | None, _Node | None, int, int]] = [("", before.root, after.root, -1, -1)]
    while pending:
        path, old, new, old_floor, new_floor = pending.pop()
        same_unread = before.unread_above(old_floor) == after.unread_above(new_floor)
        difference = _at(before, after, path, old, new, old_floor, new_floor) if path else None
        if difference:
            yield difference
        old_floor, new_floor = max(old_floor, old.cut if old else -1), max(new_floor, new.cut if new else -1)
        hidden = before.unread_above(old_floor) - after.unread_above(new_floor)
        if hidden and same_unread and not difference:
            yield Difference(f"{path}/", "removed" if hidden > 0 else "added", None, None, certain=False)
        children = ((old and old.children) or {}, (new and new.children) or {})
        pending.extend(
            (below, children[0].get(below), children[1].get(below), old_floor, new_floor)
            for below in {**children[0], **children[1]}
        )


def _at(
    before: FileTree, after: FileTree, path: str, old: _Node | None, new: _Node | None, old_floor: int, new_floor: int
) -> Difference | None:
    """Return the difference at a path itself."""
    was, now = old.file if old else None, new.file if new else None
    certain = _certain(before, old, old_floor) and _certain(after, new, new_floor)
    if was and now:
        unknown = "hardlink" in {was.kind, now.kind}
        return Difference(path, "changed", was, now, certain and not unknown) if was != now or unknown else None
    if was or now:
        return Difference(path, "removed" if was else "added", was, now, certain)
    if folder := _folders(path, old, new, certain):
        return folder
    if _maybe_kept(old, new, after, new_floor):
        return Difference(path, "added", None, None, certain=False)
    if _maybe_kept(new, old, before, old_floor):
        return Difference(path, "removed", None, None, certain=False)
    return None


def _certain(tree: FileTree, node: _Node | None, floor: int) -> bool:
    """Return whether a tree says for certain what is at a path: an unread layer may have one that no other mentions."""
    return tree.certain(node) if node else not tree.unread_above(floor)


def _maybe_kept(removed: _Node | None, other: _Node | None, tree: FileTree, floor: int) -> bool:
    """Return whether the other image may have, in an unread layer, a path that one image removes."""
    return bool(removed and removed.removed and other is None and tree.unread_above(floor))


def _folders(path: str, old: _Node | None, new: _Node | None, certain: bool) -> Difference | None:
    """Return the difference of a folder itself: of mode or owner, or a new folder that every user may write to."""
    was, now = old.entry if old else None, new.entry if new else None
    if was and now:
        return Difference(path, "changed", was, now, certain) if was != now else None
    if now and now.writable and (old is None or old.removed):
        return Difference(path, "added", None, now, certain)
    return None
