"""Layers for tests: drawn, written as archives, and laid over each other by the obvious reference, which unpacks them."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from hypothesis import strategies as st

UNSAID = 0o711
"""The mode that the reference gives a folder of which no layer says one."""


@dataclass(frozen=True)
class Item:
    """One member of a layer: a ``file``, ``directory``, ``symlink`` or ``hardlink``; ``gone`` and ``opaque`` hide.

    ``headers`` are its extended ones.
    """

    path: str
    kind: str
    text: str = ""
    mode: int = 0o644
    headers: Mapping[str, str] = field(default_factory=dict)


Layer = Sequence[Item]
Member = tuple[str, bytes | str]

_NAMES = ("a", "b", "c")
_MODES = (0o644, 0o755, 0o4755, 0o600)


def drawn(*, links: bool) -> st.SearchStrategy[Layer]:
    """Draw a layer as engines write one: a tree, of which a folder may be said or not, or hide what was in it.

    ``links`` may point to folders, through which other layers write; a link never points to a link.
    """

    def folder(path: str, depth: int) -> st.SearchStrategy[list[Item]]:
        return st.lists(st.sampled_from(_NAMES), unique=True, max_size=3).flatmap(
            lambda names: st.tuples(*(item(f"{path}{name}", depth) for name in names)).map(
                lambda nested: [*chain(*nested)]
            )
        )

    def item(path: str, depth: int) -> st.SearchStrategy[list[Item]]:
        mode = st.sampled_from(_MODES)
        leaves = [
            st.builds(lambda text, bits: [Item(path, "file", text, bits)], st.sampled_from(["", "1", "2"]), mode),
            st.just([Item(path, "gone")]),
        ]
        if depth == 0:
            return st.one_of(leaves)
        modes = st.sampled_from([[], [Item(path, "directory", mode=0o755)], [Item(path, "directory", mode=0o1777)]])
        hides = st.sampled_from([[], [], [Item(path, "opaque")]])
        below = st.tuples(modes, folder(f"{path}/", depth - 1), hides).map(lambda nested: [*chain(*nested)])
        return st.one_of(below, *leaves)

    def with_links(items: list[Item]) -> st.SearchStrategy[list[Item]]:
        files = [one.path for one in items if one.kind == "file"]
        more: list[st.SearchStrategy[list[Item]]] = [st.just([])]
        if files:
            more.append(st.sampled_from(files).map(lambda path: [Item("h", "hardlink", path)]))
        if links:
            more.append(st.sampled_from(_NAMES).map(lambda name: [Item("l", "symlink", name)]))
            more.append(st.just([Item("l/d", "file", "through")]))
        return st.one_of(more).map(lambda others: [*items, *others])

    return folder("", 2).flatmap(with_links)


def archive(layer: Iterable[Item]) -> bytes:
    """Return a layer's archive, uncompressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for item in layer:
            folder, _, name = item.path.rpartition("/")
            where = f"{folder}/" if folder else ""
            member = tarfile.TarInfo(item.path)
            member.mode, content = item.mode, b""
            member.pax_headers = dict(item.headers)
            match item.kind:
                case "gone":
                    member.name = f"{where}.wh.{name}"
                case "opaque":
                    member.name = f"{item.path}/.wh..wh..opq"
                case "directory":
                    member.type = tarfile.DIRTYPE
                case "symlink":
                    member.type, member.linkname = tarfile.SYMTYPE, item.text
                case "hardlink":
                    member.type, member.linkname = tarfile.LNKTYPE, item.text
                case _:
                    content = item.text.encode()
                    member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def members_archive(*members: Member) -> bytes:
    """Return an archive; text is a symbolic link's target, or with `=` a hard link's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in members:
            member = tarfile.TarInfo(path)
            member.mode = 0o755
            if isinstance(content, str):
                member.type = tarfile.LNKTYPE if content.startswith("=") else tarfile.SYMTYPE
                member.linkname = content.removeprefix("=")
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def files_archive(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of a layer of programs and libraries, uncompressed."""
    return members_archive(*files.items())


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _folder(root: Path, parts: Sequence[str]) -> Path:
    """Make a folder where there is none, in place of a file if need be; links lead where they lead."""
    at = root
    for part in parts:
        at = Path(os.path.realpath(at / part))
        if not at.is_dir():
            _remove(at)
            at.mkdir(parents=True)
            at.chmod(UNSAID)
    return at


def _at(root: Path, path: str) -> Path:
    *folders, name = path.split("/")
    return _folder(root, folders) / name


def unpack(layers: Iterable[Layer], root: Path) -> None:
    """Unpack layers one after the other."""
    for layer in layers:
        for item in sorted(layer, key=lambda item: item.path):
            if item.kind == "opaque":
                for child in _folder(root, item.path.split("/")).iterdir():
                    _remove(child)
        for item in layer:
            if item.kind == "gone":
                _remove(_at(root, item.path))
        for item in layer:
            if item.kind not in {"gone", "opaque"}:
                _write(root, item)


def _write(root: Path, item: Item) -> None:
    path = _at(root, item.path)
    if item.kind == "directory":
        if path.is_symlink() or not path.is_dir():
            _remove(path)
            path.mkdir()
        path.chmod(item.mode)
        return
    _remove(path)
    if item.kind == "symlink":
        path.symlink_to(item.text)
    elif item.kind == "hardlink":
        path.hardlink_to(_at(root, item.text))
    else:
        path.write_text(item.text)
        path.chmod(item.mode)


FileState = tuple[str, int | None, str]
"""Kind, mode (None for links and for folders without one in any layer), content or target."""


def file_states(root: Path) -> dict[str, FileState]:
    """Return the states of all files in a folder, by path."""
    entries: dict[str, FileState] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = stat.S_IMODE(path.lstat().st_mode)
            key = str(path.relative_to(root))
            if path.is_symlink():
                entries[key] = ("symlink", None, str(path.readlink()))
            elif path.is_dir():
                entries[key] = ("directory", None if mode == UNSAID else mode, "")
            else:
                entries[key] = ("file", mode, path.read_text())
    return entries


def differing(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> dict[str, str]:
    """Return the differing paths: added, removed or changed. Folders in only one of the two do not count."""
    differences = {}
    for path in {**before, **after}:
        was, now = before.get(path), after.get(path)
        old, new = (there if there and there[0] != "directory" else None for there in (was, now))
        if old and new:
            if old != new:
                differences[path] = "changed"
        elif old or new:
            differences[path] = "removed" if old else "added"
        elif was and now and was != now and None not in {was[1], now[1]}:
            differences[path] = "changed"
    return differences
