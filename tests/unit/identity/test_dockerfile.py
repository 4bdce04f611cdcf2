"""A Dockerfile's arguments, its comments, and the mirrors of its addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.config.mirrors import Mirrors
from stacks.errors import SlipwayError
from stacks.identity import context
from stacks.identity.dockerfile import arguments, mirrored, separate_comments


def test_arguments_have_the_default_of_any_stage(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG A=1\nARG EMPTY=""\n# ARG COMMENT=1\nARG Q="a b"\nRUN echo ARG=1\n'
        "FROM x\nARG A\nARG BASE_IMAGE\n"
    )
    assert arguments(path) == {"BASE_IMAGE": None, "A": "1", "EMPTY": "", "Q": "a b"}


def test_arguments_of_missing_dockerfile_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match=r"^there is no Dockerfile .*/none/Dockerfile$"):
        arguments(tmp_path / "none" / "Dockerfile")


def test_mirrored_takes_longest_mirror_by_whole_segments() -> None:
    declared = {
        "DOWNLOADS_NVIDIA": "https://developer.download.nvidia.com",
        "DOWNLOADS_HPCX": "https://content.mellanox.com/hpc/hpc-x",
        "DOWNLOADS_OTHER": "https://content.mellanox.community/x",
        "TORCH_INDEX_URL": "https://content.mellanox.com",
        "DOWNLOADS_UNSET": None,
    }
    mirrors = Mirrors(
        downloads={
            "https://content.mellanox.com/": "http://m.example/mellanox",
            "https://content.mellanox.com/hpc": "http://m.example/hpc/",
            "https://developer.download.nvidia.com": "http://m.example/nvidia",
        }
    )
    assert mirrored(declared, mirrors.downloads) == {
        "DOWNLOADS_NVIDIA": "http://m.example/nvidia",
        "DOWNLOADS_HPCX": "http://m.example/hpc/hpc-x",
        "TORCH_INDEX_URL": "http://m.example/mellanox",
    }


@pytest.mark.parametrize(
    "downloads", [{"ftp://x": "http://y"}, {"http://x": "http://u:p@y"}, {"http://u:p@x": "http://y"}]
)
def test_download_mirror_with_credential_is_refused(downloads: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected an http|must not carry user:password@"):
        Mirrors(downloads=downloads)


def test_separate_comments_of_edited_comment_change_alone(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"

    def entries(text: str) -> dict[str, str]:
        path.write_text(text)
        return separate_comments({"a/Dockerfile": "whole", "a/b": "b"}, "a/Dockerfile", path)

    plain, commented = entries("FROM x\nRUN y\n"), entries("# one\nFROM x\n  # two\nRUN y\n")
    assert set(plain) == {"a/Dockerfile", "a/b"}
    assert {key: value for key, value in commented.items() if key != "a/Dockerfile (comments only)"} == plain
    other = entries("# one\nFROM x\n  # three\nRUN y\n")
    assert {key for key in other if other[key] != commented[key]} == {"a/Dockerfile (comments only)"}
    assert entries("FROM x\nRUN z # two\n")["a/Dockerfile"] != plain["a/Dockerfile"]
    assert set(entries("# syntax=docker/dockerfile:1\nFROM x\n")) == {"a/Dockerfile", "a/b"}


def test_separate_comments_of_any_edit_change_an_entry(tmp_path: Path) -> None:
    """The provider hashes the whole file, so that each edit builds again: a preview has to show why."""
    path = tmp_path / "a" / "Dockerfile"
    path.parent.mkdir()
    instructions, comments = "a/Dockerfile", "a/Dockerfile (comments only)"

    def entries(text: str, mode: int = 0o644) -> dict[str, str]:
        path.write_bytes(text.encode())
        path.chmod(mode)
        return separate_comments(context.files(tmp_path, instructions), instructions, path)

    def edited(text: str, mode: int = 0o644) -> set[str]:
        before, after = entries(first), entries(text, mode)
        return {key for key in {**before, **after} if before.get(key) != after.get(key)}

    first = "FROM x\n# one\nRUN y a\n\nRUN y b\n# two\nARG V=1\n"
    assert edited(first) == set()
    assert edited("FROM x\nRUN y a\n\n# one\nRUN y b\n# two\nARG V=1\n") == {comments}
    assert edited("FROM x\nRUN y a\n# one\n\nRUN y b\n# two\nARG V=1\n") == {comments}
    assert edited("FROM x\n# one\nRUN y a\n\nRUN y b\nARG V=1\n# two\n") == {comments}
    assert edited(first.replace("\n# two", "\r\n# two")) == {instructions}
    assert edited(first.replace("# two\n", "# two\r\n")) == {comments}
    assert edited(first.rstrip("\n")) == {instructions}
    assert edited(first, 0o755) == {instructions}
    assert edited(first.replace("\n", "\r\n")) == {instructions, comments}
    # An edited instruction leaves the comments alone where these keep their place.
    assert edited(first.replace("V=1", "V=2")) == {instructions}
    assert edited(first.replace("FROM x\n", "FROM z\nENV a=b\n")) == {instructions}
