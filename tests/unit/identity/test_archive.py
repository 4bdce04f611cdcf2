"""A context in git's archive has the files of the context on disk."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.dockerfile.context import Context, Folder
from containers.errors import SlipwayError
from stacks.identity.older_trees.archive import ArchivedContext

NAMES = st.sampled_from(["a", "b", "Dockerfile", "README.md", "ä\n"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PATTERNS = st.sampled_from(
    ["*", "!a", "a/README.md", "**/b", "!a/b", "!*/a", "a", "#x", "!", "[", "!Dockerfile", "*/*"]
)
IGNORES = st.lists(PATTERNS, max_size=3).map(lambda lines: "".join(f"{line}\n" for line in lines))
TARGETS = st.sampled_from(["a", "b", "../a", "Dockerfile", "../b/README.md", ".", "missing", "../../outside", "/etc"])
DOCKERFILES = ("Dockerfile", "a/Dockerfile", "b/Dockerfile", "a/b/Dockerfile")


def put(root: Path, path: str, content: str, kind: str) -> None:
    """Write a file or a link, unless a folder is there, or a file or a link is above it."""
    target = root / path
    above = [parent for parent in target.parents if parent != root and parent.is_relative_to(root)]
    if target.is_dir() or target.is_symlink() or any(p.is_symlink() or p.is_file() for p in above):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        target.unlink(missing_ok=True)
        target.symlink_to(content)
    else:
        target.write_text(content)
        target.chmod(0o755 if kind == "executable" else 0o644)


def archive(root: Path) -> bytes:
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    tree = subprocess.run(["git", "write-tree"], cwd=root, capture_output=True, check=True).stdout.decode().strip()
    if not subprocess.run(["git", "ls-tree", tree, "context"], cwd=root, capture_output=True, check=True).stdout:
        return b""
    return subprocess.run(["git", "archive", tree, "context"], cwd=root, capture_output=True, check=True).stdout


def description(context: Context, dockerfile: str) -> object:
    """Return the Dockerfile and all that is known of each path; None without a Dockerfile."""
    try:
        paths = context.paths(dockerfile)
    except SlipwayError:  # the errors differ in the folder's name
        return None
    return context.read(dockerfile), {path: (context.digest(path), context.link(path)) for path in paths}


@given(
    st.lists(
        st.tuples(PATHS, st.sampled_from(["one", "two"]), st.sampled_from(["file", "executable"]))
        | st.tuples(PATHS, TARGETS, st.just("link"))
        | st.tuples(st.sampled_from([f"{name}.dockerignore" for name in DOCKERFILES]), IGNORES, st.just("file"))
        | st.tuples(st.sampled_from([".dockerignore", "a/Dockerfile"]), IGNORES, st.just("file")),
        max_size=12,
    )
)
def test_archived_context_has_the_files_on_disk(entries: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "context").mkdir()
        for entry in entries:
            put(root / "context", *entry)
        packed = ArchivedContext(filter(None, [archive(root)]), "context")
        for dockerfile in DOCKERFILES:
            assert description(packed, dockerfile) == description(Folder(root / "context"), dockerfile)


def test_archived_context_follows_linked_ignore_file(tmp_path: Path) -> None:
    for path, content in {"a/Dockerfile": "x", "a/b": "x", "shared/ignore": "*\n!a\na/b\n"}.items():
        put(tmp_path / "context", path, content, "file")
    put(tmp_path / "context", "c", "shared", "link")
    put(tmp_path / "context", "a/Dockerfile.dockerignore", "../c/ignore", "link")
    paths = ArchivedContext([archive(tmp_path)], "context").paths("a/Dockerfile")
    assert paths == ["a/Dockerfile", "a/Dockerfile.dockerignore"]
    assert paths == Folder(tmp_path / "context").paths("a/Dockerfile")


def test_archived_context_that_is_empty_has_no_dockerfile() -> None:
    with pytest.raises(SlipwayError, match=r"^context/a/Dockerfile: there is no such Dockerfile"):
        ArchivedContext([], "context").paths("a/Dockerfile")


def test_archived_context_with_malformed_pattern_is_refused() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in {"Dockerfile": b"FROM scratch\n", ".dockerignore": b"[\n"}.items():
            member = tarfile.TarInfo(f"context/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(SlipwayError, match=r"^context: the ignore file of Dockerfile: syntax error in pattern: \[$"):
        ArchivedContext([archive.getvalue()], "context").paths("Dockerfile")
