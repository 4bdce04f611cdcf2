"""A checkout whose Dockerfiles and links lead out of it: no build gets a file from outside, and none is written there."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks.identity import staged_context
from stacks.identity.content import CONTEXTS, CheckoutContents, contexts
from stacks.identity.older_trees.archive import ATTRIBUTES, archives
from stacks.spec import CONTEXT
from tests.unit.identity.test_content import spec

CANARY = "canary"
LINKS = {
    "file": "../../../outside/secret",
    "folder": "../../../outside",
    "absolute": "/etc/passwd",
    "loop": "loop",
    "inside": "x",
    "twice": "folder",
    "up": "..",
    "root": "/",
    "line\nFROM x": "x\ny",
}
"""Links of the image's folder, and where each leads."""
WORDS = [
    "..",
    ".",
    "",
    "a",
    "x",
    "secret",
    "outside",
    "etc",
    "passwd",
    "*",
    "?",
    *(name for name in LINKS if "\n" not in name),
]
INSTRUCTIONS = ["COPY {} /", 'COPY ["{}", "/"]', "COPY --link {} /", "ADD {} /", "RUN --mount=source={},target=/m id"]


def checkout(folder: Path, instruction: str) -> Path:
    """Write a checkout beside a folder with a secret, and return it."""
    (folder / "outside").mkdir()
    (folder / "outside/secret").write_text(CANARY)
    image = folder / "checkout" / CONTEXT / "a"
    image.mkdir(parents=True)
    (image / "Dockerfile").write_text(f"FROM scratch\n{instruction}\n")
    (image / "Dockerfile.dockerignore").write_text("*\n!a\na/Dockerfile*\n")
    (image / "x").write_text("x")
    for name, to in LINKS.items():
        (image / name).symlink_to(to)
    return folder / "checkout"


def staged(root: Path) -> list[Path]:
    """Return the files and links that the build is given; none where it is refused."""
    try:
        content = CheckoutContents(contexts(root)).of(spec(args={}, parents={}))
        staged_context.write([content], root)
    except SlipwayError as error:
        assert str(error).isprintable()
        return []
    assert content.folder.startswith(f"{CONTEXTS}/")
    return [path for path in (root / content.folder).rglob("*") if path.is_symlink() or path.is_file()]


@given(st.sampled_from(INSTRUCTIONS), st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("/".join))
@example("COPY {} /", "a/folder/secret")
@example("COPY {} /", "a/twice/secret")
@example("COPY {} /", "a/../../../outside/secret")
@example("COPY {} /", "a")
def test_source_of_a_copy_is_in_the_checkout(instruction: str, source: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = checkout(folder, instruction.format(source))
        files = staged(root)
        assert not [path for path in files if not path.is_symlink() and CANARY in path.read_text()]
        assert all(path.parent.resolve() == path.parent for path in files)
        assert [path.name for path in (folder / "outside").iterdir()] == ["secret"]


@pytest.mark.parametrize("name", ["file", "folder", "absolute", "twice", "root"])
def test_copied_link_out_of_the_checkout_is_refused(tmp_path: Path, name: str) -> None:
    assert staged(checkout(tmp_path, f"COPY a/{name} /")) == []


def test_links_of_a_copied_folder_stay_links(tmp_path: Path) -> None:
    files = staged(checkout(tmp_path, "COPY a /"))
    assert {path.name: str(path.readlink()) for path in files if path.is_symlink()} == LINKS


def git(folder: Path, *words: str, data: bytes = b"") -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    return (
        subprocess.run(["git", *who, *words], cwd=folder, input=data, check=True, capture_output=True)
        .stdout.decode()
        .strip()
    )


def tree(repository: Path, name: str, mode: str, content: str) -> str:
    """Write a tree of one entry, whatever its name, and return git's name of it."""
    entry = f"{mode} {name}\0".encode() + bytes.fromhex(content)
    return git(repository, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=entry)


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_path_of_a_commit_out_of_its_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    """Attributes of older trees are written to a temporary folder, from which this leads to another."""
    repository, temporary = tmp_path / "repository", tmp_path / "a/b/c/d/temporary"
    for folder in (repository, temporary):
        folder.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    git(repository, "init", "--quiet")
    content = git(repository, "hash-object", "-w", "--stdin", data=b"* filter=x\n")
    written = tree(repository, ATTRIBUTES, "100644", content)
    for name in ("escaped", *[".."] * levels, CONTEXT):
        written = tree(repository, name, "40000", written)
    commit = git(repository, "commit-tree", written, "-m", "x")
    with pytest.raises(SlipwayError, match="leads out of its folder; see what `git fsck` says$") as caught:
        archives(repository, commit, [CONTEXT])
    assert str(caught.value).isprintable()
    assert not list(tmp_path.rglob("escaped"))
