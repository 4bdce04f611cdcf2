"""A checkout whose Dockerfiles and links lead out of it: no build gets a file from outside, and none is written there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.file_texts import CONTEXTS
from stacks.identity.older_trees.archive import ATTRIBUTES, archives
from stacks.places import CODE
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
        archives(repository, commit, CONTEXT)
    assert str(caught.value).isprintable()
    assert not list(tmp_path.rglob("escaped"))


def many(count: int) -> dict[str, list[str]]:
    """Return Dockerfiles with so many stages, steps or variables, each of which has to do with many others."""
    each = range(count)
    stages = [f"FROM x AS s{i}" for i in each]
    children = [f"FROM a AS s{i}" for i in each]
    return {
        "names": [*stages, *(f"FROM s{i}" for i in each)],
        "numbers": [*stages, "FROM scratch", *(f"COPY --from={i} /a /" for i in each)],
        "mounts": [*(f"{stage}\nCOPY f /" for stage in stages), "FROM x", *(f"RUN --mount=from=s{i} :" for i in each)],
        "variables": [
            "FROM x AS a",
            *(f"ENV E{i}=1" for i in each),
            *children,
            *(f"COPY --from=s{i} a /" for i in each),
        ],
        "steps": ["FROM x", *(f"ENV E{i}=1\nRUN :" for i in each)],
    }


@pytest.mark.parametrize("kind", many(0))
def test_key_of_ten_thousand_stages_is_bounded(kind: str, tmp_path: Path) -> None:
    """They took up to 99 s and 4 GB of the machine of whoever asked for the key."""
    (tmp_path / "Dockerfile").write_text("\n".join(many(10_000)[kind]))
    (tmp_path / "f").touch()
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom containers.dockerfile.build_key import build_key\n"
        "from containers.errors import SlipwayError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nresource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "try:\n    build_key(Path('Dockerfile').absolute(), Path(), None, {}, 'linux/amd64')\n"
        "except SlipwayError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": str(CODE)},
    )  # fmt: skip
    assert ("more than 4,194,304" in done.stdout) == (kind in {"variables", "steps"})
