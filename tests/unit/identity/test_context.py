"""Which files belong to an image's context."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stacks.errors import SlipwayError
from stacks.identity import context

TREE = ("a/Dockerfile", "a/README.md", "a/x/one.txt", "a/x/two.sh", "b/file", "common/run", "top")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in TREE:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


@pytest.mark.parametrize(
    ("ignore", "expected"),
    [
        ("", TREE),
        ("# nothing but its own\n*\n!a\na/README.md\n", ("a/Dockerfile", "a/x/one.txt", "a/x/two.sh")),
        ("*\n!common\n!/a/x/\n", ("a/Dockerfile", "a/x/one.txt", "a/x/two.sh", "common/run")),
        ("*\n!common\n", ("a/Dockerfile", "common/run")),
        ("*\n!top\n!missing\n", ("a/Dockerfile", "top")),
        ("*\n!*/x\n", ("a/Dockerfile", "a/x/one.txt", "a/x/two.sh")),
        ("**/*.txt\na/*.md\n", ("a/Dockerfile", "a/x/two.sh", "b/file", "common/run", "top")),
        ("!a\n*\n", ("a/Dockerfile",)),
    ],
)
def test_context_with_ignore_file_lacks_what_it_ignores(root: Path, ignore: str, expected: tuple[str, ...]) -> None:
    (root / "a/Dockerfile.dockerignore").write_text(ignore)
    files = context.files(root, "a/Dockerfile")
    assert {path for path in files if not path.endswith(".dockerignore")} == set(expected)
    assert files["a/Dockerfile"] == hashlib.sha256(b"file\0a/Dockerfile").hexdigest()


def test_context_without_ignore_file_has_all_files(root: Path) -> None:
    assert set(context.files(root, "a/Dockerfile")) == set(TREE)


def test_context_digests_cover_what_git_keeps(root: Path) -> None:
    before = context.files(root, "a/Dockerfile")
    (root / "a/README.md").chmod(0o600)
    assert context.files(root, "a/Dockerfile") == before
    (root / "a/README.md").chmod(0o700)
    changed = context.files(root, "a/Dockerfile")
    assert {path for path in before if before[path] != changed[path]} == {"a/README.md"}
    (root / "link").symlink_to("top")
    first = context.files(root, "a/Dockerfile")["link"]
    (root / "link").unlink()
    (root / "link").symlink_to("b")
    assert context.files(root, "a/Dockerfile")["link"] != first


def test_context_without_dockerfile_is_refused(root: Path) -> None:
    with pytest.raises(SlipwayError, match="there is no such Dockerfile"):
        context.files(root, "c/Dockerfile")
