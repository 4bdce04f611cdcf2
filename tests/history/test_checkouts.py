"""Checkouts of one commit on several machines: one tag means one content, and one content has one tag."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from containers.errors import SlipwayError
from stacks import plan
from stacks.identity import history, older_trees
from stacks.identity.older_trees.archive import ATTRIBUTES, archives
from stacks.plan import PlannedImage
from tests.helpers.sample_repository import Checkout, make

TORCH = "dockerfiles/torch"
FILES = {"a.txt": "one\ntwo\n", "id.c": "$Id$\n"}
CRLF = "core.autocrlf=true"
FILTER = ("filter.up.smudge=tr a-z A-Z", "filter.up.clean=tr A-Z a-z")
LARGE = b"weights\n"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(LARGE).hexdigest()}\nsize 8\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    sample = make(tmp_path / "repo", program=False)
    sample.git("init", "-q", "-b", "main")
    for name, text in FILES.items():
        sample.write(f"{TORCH}/{name}", text)
    return sample


def clone(checkout: Checkout, *settings: str, attributes: str = "") -> Checkout:
    """Return another machine's checkout, with settings of its own and attributes that only it has."""
    machine = Checkout(checkout.root.with_name("machine"))
    words = [word for setting in settings for word in ("-c", setting)]
    checkout.git("clone", "-q", "--no-checkout", *words, str(checkout.root), str(machine.root))
    (machine.root / ".git/info/attributes").write_text(attributes)
    machine.git("checkout", "-q", "main")
    return machine


def keep_large(objects: Path) -> None:
    """Keep the large file as Git LFS does."""
    name = hashlib.sha256(LARGE).hexdigest()
    kept = objects / name[:2] / name[2:4] / name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(LARGE)


def forget() -> None:
    """Drop what this process keeps of a repository, as a new one has none of it."""
    for kept_in_process in (history._fingerprints, history._state, older_trees._contents):
        kept_in_process.cache_clear()


def image(checkout: Checkout) -> PlannedImage:
    (planned,) = plan.make("local", root=checkout.root).images
    return planned


@pytest.mark.parametrize(
    ("committed", "settings", "local", "same"),
    [
        ("", (CRLF,), "", False),
        ("", ("core.autocrlf=input", "core.eol=crlf"), "", True),
        ("* text=auto\n", (CRLF,), "", False),
        ("* text=auto\n", ("core.eol=crlf",), "", False),
        ("* text eol=crlf\n", (CRLF,), "", True),
        ("* -text\n", (CRLF,), "", True),
        ("*.c ident\n", (), "", True),
        ("*.txt text working-tree-encoding=UTF-16LE\n", (), "", True),
        ("*.txt export-subst\n*.c export-ignore\n", (), "* export-ignore\n", True),
        ("*.txt filter=up\n", FILTER, "", False),
        ("*.txt filter=up\n", FILTER[1:], "", True),
        ("", (), "*.txt eol=crlf\n", False),
        ("", (), "*.c ident\n", False),
    ],
)
def test_tag_where_a_machine_converts_files_has_a_mark(
    committed: str, settings: tuple[str, ...], local: str, same: bool, checkout: Checkout
) -> None:
    commit = checkout.commit(ATTRIBUTES, committed)
    machine = image(clone(checkout, *settings, attributes=local))
    assert machine.tag.startswith(f"{commit}-{'local' if same else 'x'}")


def test_git_lfs_pointer_is_refused_and_content_has_the_tag(checkout: Checkout) -> None:
    commit = checkout.commit(f"{TORCH}/w.bin", POINTER)
    with pytest.raises(SlipwayError, match=rf"{TORCH}/w\.bin: this is a pointer of Git LFS, .* `git lfs pull`"):
        image(checkout)
    (checkout.root / TORCH / "w.bin").write_bytes(LARGE)
    assert image(checkout).tag.startswith(f"{commit}-x")  # nothing says that this is what the pointer means
    forget()
    keep_large(checkout.root / ".git/lfs/objects")
    assert image(checkout).tag.startswith(f"{commit}-local")
    checkout.commit("README.md", "two\n")
    assert image(checkout).tag.startswith(f"{commit}-local")
    (checkout.root / TORCH / "w.bin").write_bytes(LARGE * 2)
    assert image(checkout).tag.startswith(f"{commit}-x")


@pytest.mark.parametrize("storage", ["", "kept", "/elsewhere"], ids=["default", "in git's folder", "absolute"])
def test_git_lfs_content_is_found_by_a_worktree(checkout: Checkout, tmp_path: Path, storage: str) -> None:
    commit = checkout.commit(f"{TORCH}/w.bin", POINTER)
    place = f"{tmp_path}{storage}" if storage.startswith("/") else storage
    checkout.git("config", "lfs.storage", place)
    checkout.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    other = Checkout(tmp_path / "other")
    (other.root / TORCH / "w.bin").write_bytes(LARGE)
    assert image(other).tag.startswith(f"other-{commit}-x")
    keep_large(checkout.root / ".git" / (place or "lfs") / "objects")
    forget()
    assert image(other).tag.startswith(f"other-{commit}-local")


def test_git_lfs_content_of_a_submodule_is_found(checkout: Checkout, tmp_path: Path) -> None:
    inner = Checkout(tmp_path / "inner")
    inner.root.mkdir()
    inner.git("init", "-q", "-b", "main")
    inner.commit("w.bin", POINTER)
    checkout.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.root), f"{TORCH}/sub")
    commit = checkout.commit(f"{TORCH}/Dockerfile.dockerignore", "*\n!torch\ntorch/Dockerfile*\n**/.git\n")
    (checkout.root / TORCH / "sub/w.bin").write_bytes(LARGE)
    keep_large(checkout.root / f".git/modules/{TORCH}/sub/lfs/objects")
    assert image(checkout).tag.startswith(f"{commit}-local")


def test_attributes_above_a_context_count(checkout: Checkout) -> None:
    checkout.write("images/one/a", "one\n")
    checkout.commit(f"images/{ATTRIBUTES}", "* text eol=crlf\n")
    (packed,) = archives(checkout.root, "HEAD", "images/one")
    assert b"one\r\n" in packed


def test_submodule_counts_with_its_commit(checkout: Checkout, tmp_path: Path) -> None:
    """Without its files, a machine builds something else from the same commit."""
    allow = ("-c", "protocol.file.allow=always", "submodule")
    inner = Checkout(tmp_path / "inner")
    inner.root.mkdir()
    inner.git("init", "-q", "-b", "main")
    inner.commit("s.txt", "one\n")
    checkout.git(*allow, "add", "-q", str(inner.root), f"{TORCH}/sub")
    commit = checkout.commit(f"{TORCH}/Dockerfile.dockerignore", "*\n!torch\ntorch/Dockerfile*\n**/.git\n")
    machine = clone(checkout)
    assert image(machine).tag.startswith(f"{commit}-x")
    forget()
    machine.git(*allow, "update", "-q", "--init")
    assert image(machine).tag.startswith(f"{commit}-local")
    machine.commit("dockerfiles/other/Dockerfile", "FROM scratch\n")
    assert image(machine).tag.startswith(f"{commit}-local")
