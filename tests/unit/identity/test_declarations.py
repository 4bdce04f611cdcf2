"""The arguments that a Dockerfile declares, and the mirrors of its addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.dockerfile.declarations import arguments, mirrored
from containers.errors import SlipwayError
from stacks.config.fetching.mirrors import MirrorsConfig
from tests.helpers.every import every


def test_arguments_have_the_default_of_any_stage(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG A=1\nARG EMPTY=""\n# ARG COMMENT=1\nARG Q="a b"\nRUN echo ARG=1\n'
        "FROM x\nARG A\nARG BASE_IMAGE\n"
    )
    assert arguments(path) == {"BASE_IMAGE": None, "A": "1", "EMPTY": "", "Q": "a b"}


@every(
    "line, default",
    [
        ("ARG A='b c' \t", "b c"),
        ("ARG A=\"b' ", "\"b'"),
        ('ARG A="', '"'),
        ("ARG A=''", ""),
        ('ARG A="b" "c"', 'b" "c'),
        ("ARG A= b", " b"),
        ("ARG A \t", None),
        ('ARG A="" # no "words"', ""),
        ("ARG A=b\t# c", "b"),
        ("ARG A='b # c' #", "b # c"),
        ("ARG A=https://a.example/#b", "https://a.example/#b"),
    ],
)
def test_default_of_an_argument_is_without_its_quotes(tmp_path: Path, line: str, default: str | None) -> None:
    path = tmp_path / "Dockerfile"
    path.write_bytes(f"# \xff\n{line}\nARG A B\n".encode("latin-1"))
    assert arguments(path) == {"A": default}


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
    mirrors = MirrorsConfig(
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


@every("downloads", [{"ftp://x": "http://y"}, {"http://x": "http://u:p@y"}, {"http://u:p@x": "http://y"}])
def test_download_mirror_with_credential_is_refused(downloads: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected an http|must not carry user:password@"):
        MirrorsConfig(downloads=downloads)
