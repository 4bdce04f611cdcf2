"""``fetch-source`` says why it has no source: the name is not there, or the host is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.helpers.every import every
from tests.helpers.sample_repository import Checkout

SCRIPT = ROOT / "dockerfiles" / "common" / "build" / "fetch-source"
NO_HOST = "http://127.0.0.1:9"


@pytest.fixture
def mirror(tmp_path: Path) -> str:
    """A mirror with one repository, whose tag ``v1`` has a file."""
    repository = Checkout(tmp_path / "mirror" / "owner" / "name")
    repository.root.mkdir(parents=True)
    repository.git("init", "-q")
    repository.commit("file", "content\n")
    repository.git("tag", "v1")
    return (tmp_path / "mirror").as_uri()


def _fetch(mirror: str, ref: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["sh", str(SCRIPT), "owner/name", ref, str(folder)]
    return subprocess.run(words, env={**os.environ, "GIT_MIRROR": mirror}, capture_output=True, text=True, check=False)


def test_fetch_source_of_a_tag_leaves_its_files_alone(mirror: str, tmp_path: Path) -> None:
    fetched = _fetch(mirror, "v1", tmp_path / "source")
    assert fetched.returncode == 0, fetched.stderr
    assert [file.name for file in (tmp_path / "source").iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("ref", "missing"),
    [
        ("v2", "tag 'v2' at {}; give a version that is released there, or a commit"),
        ("a" * 40, "commit '" + "a" * 40 + "' at {}"),
    ],
)
def test_fetch_source_names_what_the_repository_lacks(mirror: str, tmp_path: Path, ref: str, missing: str) -> None:
    refused = _fetch(mirror, ref, tmp_path / "source")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == f"fetch-source: owner/name has no {missing.format(mirror)}"


@every("ref", ["v1", "abcdef1", "a" * 40])
def test_fetch_source_without_the_host_blames_the_host(tmp_path: Path, ref: str) -> None:
    refused = _fetch(NO_HOST, ref, tmp_path / "source")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"fetch-source: cannot read owner/name at {NO_HOST}, for the reason above; "
        "build where it can be reached, or set slipway:mirrors.git"
    )
