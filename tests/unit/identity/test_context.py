"""Which files belong to an image's context."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from containers.dockerfile.context import Folder
from containers.errors import SlipwayError
from tests.helpers.every import every

TREE = ("a/Dockerfile", "a/README.md", "a/x/one.txt", "a/x/two.sh", "b/file", "common/run", "top")


def filled(tmp_path: Path) -> Path:
    for path in TREE:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path)


def digests(root: Path) -> dict[str, str]:
    folder = Folder(root)
    return {path: folder.digest(path) for path in folder.paths("a/Dockerfile")}


@every(
    "ignore, expected",
    [
        ("", TREE),
        ("# nothing but its own\n*\n!a\na/README.md\n", ("a/Dockerfile", "a/x/one.txt", "a/x/two.sh")),
        ("*\n!common\n!/a/x/\n", ("a/x/one.txt", "a/x/two.sh", "common/run")),
        ("*\n!common\n", ("common/run",)),
        ("*\n!top\n!missing\n", ("top",)),
        ("*\n!*/x\n", ("a/x/one.txt", "a/x/two.sh")),
        ("**/*.txt\na/*.md\n", ("a/Dockerfile", "a/x/two.sh", "b/file", "common/run", "top")),
        ("!a\n*\n", ()),
    ],
)
def test_context_with_ignore_file_lacks_what_it_ignores(tmp_path: Path, ignore: str, expected: tuple[str, ...]) -> None:
    root = filled(tmp_path)
    (root / "a/Dockerfile.dockerignore").write_text(ignore)
    paths = Folder(root).paths("a/Dockerfile")
    assert [path for path in paths if not path.endswith(".dockerignore")] == list(expected)


def test_context_without_ignore_file_has_all_files(root: Path) -> None:
    assert Folder(root).paths("a/Dockerfile") == sorted(TREE)


def test_context_digests_cover_what_git_keeps(root: Path) -> None:
    before = digests(root)
    assert before["a/Dockerfile"] == hashlib.sha256(b"file\0a/Dockerfile").hexdigest()
    (root / "a/README.md").chmod(0o600)
    assert digests(root) == before
    (root / "a/README.md").chmod(0o700)
    changed = digests(root)
    assert {path for path in before if before[path] != changed[path]} == {"a/README.md"}
    (root / "link").symlink_to("top")
    first = digests(root)["link"]
    (root / "link").unlink()
    (root / "link").symlink_to("b")
    assert digests(root)["link"] != first


def test_context_link_is_read_as_written(root: Path) -> None:
    (root / "link").symlink_to("../elsewhere/")
    folder = Folder(root)
    assert "link" in folder.paths("a/Dockerfile")
    assert folder.link("link") == "../elsewhere/"
    assert folder.link("top") is None


def test_context_with_a_pipe_is_refused_where_it_is_read(root: Path) -> None:
    os.mkfifo(root / "pipe")
    folder = Folder(root)
    assert "pipe" in folder.paths("a/Dockerfile")
    with pytest.raises(SlipwayError, match="pipe is no file, folder or link"):
        folder.digest("pipe")


def test_context_without_dockerfile_is_refused(root: Path) -> None:
    with pytest.raises(SlipwayError, match="there is no such Dockerfile"):
        Folder(root).paths("c/Dockerfile")
