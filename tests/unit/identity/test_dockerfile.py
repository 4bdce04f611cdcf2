"""What a Dockerfile takes, and the mirrors that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.config.mirrors import Mirrors
from stacks.errors import SlipwayError
from stacks.identity import context
from stacks.identity.dockerfile import arguments, mirrored, separate_comments


def test_arguments_are_read_with_the_default_that_some_stage_gives(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG A=1\nARG EMPTY=""\n# ARG COMMENT=1\nARG Q="a b"\nRUN echo ARG=1\n'
        "FROM x\nARG A\nARG BASE_IMAGE\n"
    )
    assert arguments(path) == {"BASE_IMAGE": None, "A": "1", "EMPTY": "", "Q": "a b"}


def test_a_missing_dockerfile_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match=r"^there is no Dockerfile .*/none/Dockerfile$"):
        arguments(tmp_path / "none" / "Dockerfile")


def test_a_download_goes_to_the_longest_mirror_of_its_public_address_by_whole_segments() -> None:
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
def test_a_download_mirror_is_an_address_without_a_credential(downloads: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected an http|must not carry user:password@"):
        Mirrors(downloads=downloads)


def test_comments_are_separate_comments_from_what_a_dockerfile_does(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"

    def told(text: str) -> dict[str, str]:
        path.write_text(text)
        return separate_comments({"a/Dockerfile": "whole", "a/b": "b"}, "a/Dockerfile", path)

    plain, commented = told("FROM x\nRUN y\n"), told("# one\nFROM x\n  # two\nRUN y\n")
    assert set(plain) == {"a/Dockerfile", "a/b"}
    assert {key: value for key, value in commented.items() if key != "a/Dockerfile (comments only)"} == plain
    other = told("# one\nFROM x\n  # three\nRUN y\n")
    assert {key for key in other if other[key] != commented[key]} == {"a/Dockerfile (comments only)"}
    assert told("FROM x\nRUN z # two\n")["a/Dockerfile"] != plain["a/Dockerfile"]
    assert set(told("# syntax=docker/dockerfile:1\nFROM x\n")) == {"a/Dockerfile", "a/b"}


def test_whatever_differs_in_a_dockerfile_is_told_as_a_difference(tmp_path: Path) -> None:
    """As all of it is hashed by the provider: no edit builds anew without a reason that a preview shows."""
    path = tmp_path / "a" / "Dockerfile"
    path.parent.mkdir()
    does, says = "a/Dockerfile", "a/Dockerfile (comments only)"

    def told(text: str, mode: int = 0o644) -> dict[str, str]:
        path.write_bytes(text.encode())
        path.chmod(mode)
        return separate_comments(context.files(tmp_path, does), does, path)

    def edited(text: str, mode: int = 0o644) -> set[str]:
        before, after = told(first), told(text, mode)
        return {key for key in {**before, **after} if before.get(key) != after.get(key)}

    first = "FROM x\n# one\nRUN y a\n\nRUN y b\n# two\nARG V=1\n"
    assert edited(first) == set()
    assert edited("FROM x\nRUN y a\n\n# one\nRUN y b\n# two\nARG V=1\n") == {says}
    assert edited("FROM x\nRUN y a\n# one\n\nRUN y b\n# two\nARG V=1\n") == {says}
    assert edited("FROM x\n# one\nRUN y a\n\nRUN y b\nARG V=1\n# two\n") == {says}
    assert edited(first.replace("\n# two", "\r\n# two")) == {does}
    assert edited(first.replace("# two\n", "# two\r\n")) == {says}
    assert edited(first.rstrip("\n")) == {does}
    assert edited(first, 0o755) == {does}
    assert edited(first.replace("\n", "\r\n")) == {does, says}
    # And what it does is not told as a comment, where that stands as it stood.
    assert edited(first.replace("V=1", "V=2")) == {does}
    assert edited(first.replace("FROM x\n", "FROM z\nENV a=b\n")) == {does}
