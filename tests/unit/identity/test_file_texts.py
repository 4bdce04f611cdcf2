"""The text of a file that an image had, by its hash: from contexts of builds and from commits, and never another one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from containers.dockerfile import context
from stacks import differences
from stacks.identity import file_texts, staged_context
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.file_texts import both, text
from stacks.spec import CONTEXT
from tests.unit.identity.test_content import spec

IMAGE: dict[str, Any] = {"args": {}, "labels": {}, "parents": {}, "platform": "linux/amd64", "target": None}


def digest(content: bytes, *, executable: bool = False) -> str:
    return context.digest(content, executable=executable)[:12]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / CONTEXT / "a"
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM scratch AS other\nFROM scratch\n# comment\nCOPY a/run /\n")
    (folder / "Dockerfile.dockerignore").write_text("*\n!a\n")
    (folder / "run").write_text("one\n")
    (folder / "run").chmod(0o755)
    return tmp_path


def commit(root: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


@pytest.mark.parametrize("kept", ["contexts", "commits"])
def test_text_of_changed_file_is_the_earlier_one(root: Path, kept: str) -> None:
    content = CheckoutContents(contexts(root)).of(spec(args={}, parents={}))
    if kept == "contexts":
        staged_context.write([content], root)
    else:
        commit(root)
    (root / CONTEXT / "a/run").write_text("two\n")
    (root / CONTEXT / "a/Dockerfile").write_text("FROM scratch\nCOPY a/run /other\n")
    listing = {path: digest[:12] for path, digest in content.listing.items()}
    assert text("a/run", listing["a/run"], IMAGE, root) == "one\n"
    assert text("a/Dockerfile", listing["a/Dockerfile"], IMAGE, root) == "FROM scratch\nCOPY a/run /\n"


def test_text_is_of_a_file_alone(root: Path) -> None:
    """A link in a context of a build may lead to any file of this machine."""
    commit(root)
    (root / "elsewhere").write_text("of another\n")
    folder = root / file_texts.CONTEXTS / "0123/a"
    (folder / "folder").mkdir(parents=True)
    (folder / "link").symlink_to(root / "elsewhere")
    assert text("a/link", digest(b"of another\n"), IMAGE, root) is None
    assert text("a/folder", digest(b""), IMAGE, root) is None


def test_text_with_another_hash_is_not_taken(root: Path) -> None:
    commit(root)
    assert text("a/run", digest(b"three\n", executable=True), IMAGE, root) is None
    assert text("a/run", digest(b"one\n"), IMAGE, root) is None  # the mode counts too
    assert both("a/run", (digest(b"zero\n"), IMAGE), (digest(b"one\n", executable=True), IMAGE), root) == ("", "")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a/.env", b"A=1\n"),
        ("a/server.key", b"x\n"),
        ("a/data", b"\0binary"),
        ("a/data", b"\xff\xfe"),
        ("a/data", b"x" * (file_texts._LARGEST + 1)),
    ],
)
def test_text_of_secrets_and_data_is_not_shown(root: Path, name: str, content: bytes) -> None:
    (root / CONTEXT / name).write_bytes(content)
    commit(root)
    assert text(name, digest(content), IMAGE, root) is None


def test_text_without_git_or_contexts_is_unknown(tmp_path: Path) -> None:
    assert text("a/[run]*", digest(b"one\n"), IMAGE, tmp_path) is None


def test_text_of_strange_name_is_its_own(root: Path) -> None:
    name = "a/[r]un*?"
    (root / CONTEXT / name).write_bytes(b"strange\n")
    commit(root)
    assert text(name, digest(b"strange\n"), IMAGE, root) == "strange\n"


def test_text_behind_a_link_is_not_read(root: Path) -> None:
    staged = root / ".slipway/contexts/0" / "a"
    staged.mkdir(parents=True)
    (root / "secret").write_text("one\n")
    (staged / "link").symlink_to(root / "secret")
    assert text("a/link", digest(b"one\n"), IMAGE, root) is None


def test_changed_lines_are_marked_and_bounded() -> None:
    before = "".join(f"line {number}\n" for number in range(20))
    assert differences.changed_lines(before, before.replace("line 7\n", "seven\n")) == ["- line 7", "+ seven"]
    lines = differences.changed_lines(before, "")
    assert lines[-1] == "... and 12 more lines"
    assert len(lines) == 9
    assert differences.changed_lines("a\n" * 5001, "b\n") == []


def test_changed_lines_of_long_step_have_its_part() -> None:
    step = f"RUN --mount=type=cache,target=/x apt-get update && apt-get install {'package ' * 10}&& pip install torch=={{}}\n"
    assert differences.changed_lines(step.format("1"), step.format("2")) == [
        "- && pip install torch==1",
        "+ && pip install torch==2",
    ]


def test_changed_lines_control_no_terminal() -> None:
    [line] = differences.changed_lines("", "\x1b]0;title\x07\x1b[2J\u202e\r\n")
    assert line.isprintable()
