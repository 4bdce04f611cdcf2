"""The folders that builds are given: whole, the same everywhere, never changed, and removed in the end."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from containers.errors import SlipwayError
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.identity.file_texts import CONTEXTS
from stacks.spec import CONTEXT
from tests.unit.identity.test_content import spec

DOCKERFILE = "FROM scratch\nCOPY a /a\n"
IGNORE = "*\n!a\na/Dockerfile*\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / CONTEXT / "a"
    (folder / "deep").mkdir(parents=True)
    for name, text in {
        "Dockerfile": DOCKERFILE,
        "Dockerfile.dockerignore": IGNORE,
        "deep/file": "x",
        "run": "y",
    }.items():
        (folder / name).write_text(text)
    (folder / "run").chmod(0o700)
    (folder / "deep/file").chmod(0o600)
    (folder / "link").symlink_to("deep/../run")
    return tmp_path


def planned(root: Path) -> Content:
    return CheckoutContents(contexts(root)).of(spec(args={}, parents={}))


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the mode of each path in a folder, and its content or where it leads."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.lstat().st_mode) if not path.is_symlink() else 0,
            str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_folder_has_content_with_the_modes_of_git(root: Path, umask: int) -> None:
    content = planned(root)
    before = os.umask(umask)
    try:
        staged_context.write([content], root)
    finally:
        os.umask(before)
    folder = root / content.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert tree(folder) == {
        "Dockerfile": (0o644, DOCKERFILE),
        "Dockerfile.dockerignore": (0o644, "/Dockerfile\n/Dockerfile.dockerignore\n"),
        "a": (0o755, ""),
        "a/deep": (0o755, ""),
        "a/deep/file": (0o644, "x"),
        "a/link": (0, "deep/../run"),
        "a/run": (0o755, "y"),
    }


def test_folder_of_edited_content_is_another(root: Path) -> None:
    first = planned(root)
    staged_context.write([first], root)
    before = tree(root / first.folder)
    (root / CONTEXT / "a/run").write_text("z")
    second = planned(root)
    staged_context.write([second], root)
    assert second.folder != first.folder
    assert tree(root / first.folder) == before
    assert (root / second.folder / "a/run").read_text() == "z"


def test_checks_have_a_folder_of_their_own(root: Path) -> None:
    text = "ARG CHECKED_IMAGE=image\nFROM scratch AS image\nCOPY a/run /\nFROM ${CHECKED_IMAGE} AS checks\nCOPY a/deep /\nFROM image\n"
    (root / CONTEXT / "a/Dockerfile").write_text(text)
    content = planned(root)
    staged_context.write([content], root)
    assert content.checks
    assert sorted(tree(root / content.folder)) == ["Dockerfile", "Dockerfile.dockerignore", "a", "a/run"]
    checks = tree(root / content.checks.folder).keys()
    assert "a/deep/file" in checks
    assert "a/run" not in checks


def test_folder_that_exists_is_used_as_it_is(root: Path) -> None:
    content = planned(root)
    staged_context.write([content], root)
    shutil.rmtree(root / CONTEXT)
    (root / CONTEXT).mkdir()
    staged_context.write([content], root)
    assert (root / content.folder / "a/run").read_text() == "y"


@pytest.mark.parametrize("edit", ["echo >> a/run", "chmod 700 a/run", "rm a/run", "touch a/new", "echo >> Dockerfile"])
def test_folder_that_was_edited_is_refused(root: Path, edit: str) -> None:
    """It would be built under the tag of what was there."""
    content = planned(root)
    staged_context.write([content], root)
    subprocess.run(["sh", "-c", edit], cwd=root / content.folder, check=True)
    with pytest.raises(SlipwayError, match=r"edited by hand; .*: remove .*, and edit the file in dockerfiles$"):
        staged_context.write([content], root)


def test_folders_of_two_runs_at_once_are_whole(root: Path) -> None:
    content = planned(root)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(staged_context.write, [content], root) for _ in range(16)]:
            done.result()
    assert [path.name for path in (root / CONTEXTS).iterdir()] == [Path(content.folder).name]
    assert len(tree(root / content.folder)) == 7


def test_file_that_changed_after_the_plan_is_refused(root: Path) -> None:
    content = planned(root)
    (root / CONTEXT / "a/run").write_text("z")
    with pytest.raises(SlipwayError, match=r"a/run: it changed while it was read; run the command again$"):
        staged_context.write([content], root)
    assert list((root / CONTEXTS).iterdir()) == []


def test_file_named_as_the_dockerfile_is_refused(root: Path) -> None:
    (root / CONTEXT / "a/Dockerfile.dockerignore").write_text("")
    (root / CONTEXT / "a/Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    (root / CONTEXT / "Dockerfile").write_text("x")
    with pytest.raises(SlipwayError, match="dockerfiles/Dockerfile: a build cannot read a file of this name"):
        staged_context.write([planned(root)], root)


def test_folder_that_cannot_be_written_is_one_line(root: Path) -> None:
    (root / CONTEXTS).parent.mkdir()
    (root / CONTEXTS).write_text("")
    with pytest.raises(SlipwayError, match="the contexts of the builds cannot be written: .*make the folder writable$"):
        staged_context.write([planned(root)], root)


def test_folder_without_use_for_a_week_is_removed(root: Path) -> None:
    content = planned(root)
    staged_context.write([content], root)
    day = 24 * 3600
    of_another, unused = (root / CONTEXTS / name for name in ("fedcba9876543210", "0123456789abcdef"))
    for folder, age in ((root / content.folder, 30 * day), (of_another, 6.9 * day), (unused, 7.1 * day)):
        folder.mkdir(exist_ok=True)
        os.utime(folder, (0, time.time() - age))
    staged_context.write([content], root)
    assert (root / content.folder).is_dir()
    assert of_another.is_dir()
    assert not unused.exists()
