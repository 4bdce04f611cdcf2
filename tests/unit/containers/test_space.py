"""The space of an image: what counts, once, and which files take it for nothing."""

from __future__ import annotations

import io
import tarfile

from containers.image.layers.file_tree import FileTree
from containers.image.layers.layer import Entry, LayerIndex, index
from containers.image.layers.space import HIDDEN, Space, space
from tests.helpers.every import every


def file(size: int) -> Entry:
    return Entry("file", 0o644, (0, 0), size)


def space_of(*layers: LayerIndex) -> Space:
    return space(layers, FileTree(layers))


def test_space_of_replaced_and_removed_files_is_hidden() -> None:
    base = LayerIndex({"a": file(5), "b": file(7), "c/d": file(11), "e": file(13)})
    above = LayerIndex({"a": file(3)}, removed={"b"}, opaque={"c"})
    assert space_of(base, above) == Space(39, {HIDDEN: {"a": 5, "b": 7, "c/d": 11}})


def test_space_of_a_file_with_two_names_counts_once() -> None:
    entry = file(5)
    link = LayerIndex({"c": Entry("hardlink", 0o644, (0, 0), target="a")})
    assert space_of(LayerIndex({"a": entry, "b": entry}, links={"b": "a"}), link) == Space(5, {})


def test_space_of_a_link_in_an_archive_counts_once() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, first in (("a", ""), ("b", "a"), ("c", "b")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = (
                (tarfile.LNKTYPE, first, 0) if first else (tarfile.REGTYPE, "", 5)
            )
            tar.addfile(member, io.BytesIO(b"" if first else b"12345"))
    archive.seek(0)
    layer = index(archive, "application/vnd.oci.image.layer.v1.tar", facts=lambda *_: None)
    assert layer.links == {"b": "a", "c": "a"}
    assert space_of(layer) == Space(5, {})


def test_space_of_a_removed_name_is_not_hidden_with_another() -> None:
    entry = file(5)
    base = LayerIndex({"a": entry, "b": entry, "c": entry}, links={"b": "a"})
    assert space_of(base, LayerIndex(removed={"a", "c"})) == Space(10, {HIDDEN: {"c": 5}})
    assert space_of(base, LayerIndex(removed={"b"})) == Space(10, {})
    assert space_of(base, LayerIndex({"b": file(1)}, removed={"a"})) == Space(11, {HIDDEN: {"a": 5}})


def test_space_of_a_removed_deep_folder_is_hidden() -> None:
    path = "/".join(["a"] * 3000)
    removed = space_of(LayerIndex({path: file(5)}), LayerIndex(removed={"a"}))
    assert removed == Space(5, {HIDDEN: {path: 5}})
    assert space_of(LayerIndex({"a/b": file(5)}), LayerIndex({"a": file(1)})) == Space(6, {HIDDEN: {"a/b": 5}})
    assert space_of(LayerIndex({"a": file(5)}), LayerIndex({"a/b": file(1)})) == Space(6, {HIDDEN: {"a": 5}})


@every(
    "path, kind",
    [
        ("var/cache/apt/archives/gcc_12_amd64.deb", "caches of package managers"),
        ("var/cache/apt/archives/lock", ""),
        ("var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_main_binary-amd64_Packages", "caches of package managers"),
        ("var/cache/dnf/baseos/packages/a.rpm", "caches of package managers"),
        ("root/.cache/pip/http-v2/a", "caches of package managers"),
        ("home/user/.cache/torch/a.pt", "caches of package managers"),
        ("opt/conda/pkgs/python-3.11.conda", "caches of package managers"),
        ("usr/lib/x86_64-linux-gnu/libc.a", "static libraries"),
        ("usr/lib/debug/.build-id/aa/b.debug", "debug symbols"),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", ""),
        ("opt/venv/lib/python3.11/site-packages/a.abc", ""),
    ],
)  # fmt: skip
def test_space_of_a_file_that_nobody_needs_has_its_kind(path: str, kind: str) -> None:
    assert space_of(LayerIndex({path: file(5)})) == Space(5, {kind: {path: 5}} if kind else {})


def test_space_as_json_has_the_largest_files_first() -> None:
    found = space_of(LayerIndex({"a.a": file(5), "b.a": file(7)})).as_json()
    assert found == {"bytes": 12, "unneeded": {"static libraries": {"bytes": 12, "files": {"b.a": 7, "a.a": 5}}}}
    assert [*found["unneeded"]["static libraries"]["files"]] == ["b.a", "a.a"]
