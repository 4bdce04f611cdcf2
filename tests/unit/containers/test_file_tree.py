"""Differences of file trees, compared with those of unpacked layers."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.blob import BlobUnreadable
from containers.image.layers.file_tree import Difference, FileTree, differences
from containers.image.layers.layer import LayerIndex, index
from tests.helpers.every import every
from tests.helpers.layers import Item, Layer, archive, differing, drawn, file_states, unpack


def files_of(stack: Sequence[Layer]) -> dict[str, tuple[str, int | None, str]]:
    with tempfile.TemporaryDirectory() as folder:
        unpack(stack, Path(folder))
        return file_states(Path(folder))


def read(layer: Layer) -> LayerIndex:
    return index(io.BytesIO(archive(layer)), "application/vnd.oci.image.layer.v1.tar")


def tree(stack: Sequence[Layer]) -> FileTree:
    return FileTree([read(layer) for layer in stack])


@given(st.lists(drawn(links=True), max_size=4), st.lists(drawn(links=True), max_size=4))
def test_differences_equal_those_of_unpacked_images(before: list[Layer], after: list[Layer]) -> None:
    result = differences(tree(before), tree(after))
    assert {file.path: file.change for file in result} == differing(files_of(before), files_of(after))
    assert all(file.certain for file in result)


@given(st.lists(drawn(links=True), max_size=5))
def test_differences_of_same_image_are_empty(stack: list[Layer]) -> None:
    assert differences(tree(stack), tree(stack)) == []


Mixed = list[tuple[str, Layer]]


@given(
    st.lists(
        st.tuples(st.sampled_from(["shared", "shared", "before", "after"]), drawn(links=False)), min_size=1, max_size=6
    )
)
def test_differences_with_unread_layers_are_sound_and_complete(mixed: Mixed) -> None:
    def stack(side: str) -> list[Layer]:
        return [layer for kind, layer in mixed if kind in {"shared", side}]

    def partly(side: str) -> FileTree:
        return FileTree(
            [None if kind == "shared" else read(layer) for kind, layer in mixed if kind in {"shared", side}]
        )

    images = files_of(stack("before")), files_of(stack("after"))
    truth = differing(*images)
    result = differences(partly("before"), partly("after"))
    for file in result:
        if file.certain:
            assert truth.get(file.path) == file.change
    paths = {file.path for file in result}
    # A folder that a layer writes counts as existing before: engines write the parents of each file.
    folders = {path for image in images for path, what in image.items() if what[0] == "directory"}
    for path in truth.keys() - folders:
        above = [path[:end] for end in range(len(path) + 1) if end == len(path) or path[end] == "/"]
        assert paths & ({path, "/"} | {*above} | {f"{folder}/" for folder in above}), path


def difference(before: list[Layer | None], after: list[Layer | None]) -> list[tuple[str, str, bool]]:
    trees = [FileTree([None if layer is None else read(layer) for layer in stack]) for stack in (before, after)]
    return [(file.path, file.change, file.certain) for file in differences(*trees)]


def file(path: str, text: str = "x", mode: int = 0o644) -> Item:
    return Item(path, "file", text, mode)


@every(
    "before, after, expected",
    [
        ([None, [file("a", "1")]], [None, [file("a", "2")]], [("a", "changed", True)]),
        ([None], [None, [file("a")]], [("a", "added", False)]),
        ([None, [file("a")]], [None], [("a", "removed", False)]),
        ([None, [file("a")]], [None, [Item("a", "gone")]], [("a", "removed", True)]),
        ([None], [None, [Item("a", "gone")]], [("a", "removed", False)]),
        ([None], [None, [Item("a", "opaque")]], [("a/", "removed", False)]),
        ([[file("a", "1")], None], [[file("a", "2")], None], [("a", "changed", False)]),
        ([[file("a", "1")], None, [file("a")]], [[file("a", "2")], None, [file("a")]], []),
        ([[file("a/b")], [Item("a", "gone")]], [[]], []),
        ([[file("a/b")], [Item("a", "opaque"), file("a/c")]], [[file("a/c")]], []),
        ([[file("a")]], [[file("a", mode=0o4644)]], [("a", "changed", True)]),
        ([[]], [[Item("a", "directory", mode=0o777)]], [("a", "added", True)]),
        ([[]], [[Item("a", "directory", mode=0o1777)]], []),
    ],
)
def test_differences_with_unread_layers_by_case(
    before: list[Layer | None], after: list[Layer | None], expected: list[tuple[str, str, bool]]
) -> None:
    assert difference(before, after) == expected


def test_hard_link_to_lower_layer_is_its_target() -> None:
    link = [Item("b", "hardlink", "a")]
    assert difference([[file("a"), file("b")]], [[file("a")], link]) == []
    assert difference([[file("a", "1"), file("b", "1")]], [[file("a"), *link]]) == [
        ("a", "changed", True),
        ("b", "changed", True),
    ]


def test_file_below_symlink_is_written_to_its_target() -> None:
    merged = [[Item("usr/lib", "directory", mode=0o755), Item("lib", "symlink", "/usr/lib")], [file("lib/a")]]
    assert [(result.path, result.change) for result in differences(tree(merged[:1]), tree(merged))] == [
        ("usr/lib/a", "added")
    ]


def test_folder_that_a_link_replaces_between_its_files_is_new() -> None:
    first = Item("link", "symlink", "/a")
    stack = [[first, file("a/b/x"), file("link/b"), file("a/b/y")]]
    assert [path for path, _ in tree(stack).paths()] == ["a", "link", "a/b", "a/b/y"]


@every("content", [b"", b"not an archive" * 100, archive([file("a")])[:700]])
def test_index_of_malformed_archive_is_unreadable(content: bytes) -> None:
    with pytest.raises(BlobUnreadable, match="malformed layer archive"):
        index(io.BytesIO(content), "application/vnd.oci.image.layer.v1.tar")


def record(name: str, kind: bytes = b"0", **records: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.pax_headers = kind, records
    return info.tobuf(tarfile.PAX_FORMAT)


@every(
    "second, reason",
    [
        (record("b", size="abc"), "size 'abc' in an extended header, expected a number"),
        (record("b", uid="1.5"), "uid '1.5' in an extended header, expected a number"),
        (record("b", path="b\0c"), "a zero byte in the name"),
        (b"x" * 512, "a header is malformed: invalid header"),
        (record("b")[:300], "a header is malformed: truncated header"),
        (record("a/" * 2048 + "b"), "a path of 4,097 bytes"),
        (record("b", kind=b"Q"), "a file of type b'Q', which no engine unpacks"),
    ],
)
def test_index_refuses_headers_that_engines_refuse(second: bytes, reason: str) -> None:
    """`tarfile` would end there, or go on."""
    content = tarfile.TarInfo("a").tobuf() + second
    with pytest.raises(BlobUnreadable, match=f"malformed layer archive: {re.escape(reason)}"):
        index(io.BytesIO(content), "application/vnd.oci.image.layer.v1.tar")


@every(
    "links, broken",
    [
        ({"b": "a"}, []),
        ({"b": "folder/a"}, []),
        ({"b": "link/a"}, []),
        ({"b": "later"}, ["later"]),
        ({"b": "b"}, ["b"]),
        ({"b": "c", "c": "b"}, ["c", "c"]),
        ({"b": "../../nowhere"}, ["nowhere"]),
        ({"b": "folder"}, ["folder"]),
        ({"b": "own"}, ["own"]),
    ],
)
def test_hard_link_to_no_earlier_file_is_broken(links: Mapping[str, str], broken: list[str]) -> None:
    lower = [file("a"), Item("folder", "directory"), file("folder/a"), Item("link", "symlink", "folder")]
    hard = [Item(name, "hardlink", target) for name, target in links.items()]
    upper = [Item("own", "directory"), *hard, file("later")]
    assert [entry.target for entry in tree([lower, upper]).broken] == broken


def test_normal_path_stays_in_image() -> None:
    (result,) = differences(tree([]), tree([[file("../../etc/x")]]))
    assert isinstance(result, Difference)
    assert result.path == "etc/x"
