"""Whoever names a branch, calls a workflow or opens a pull request chooses names and artifacts: none becomes a command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ci import actions
from ci.arguments import main
from ci.verbs import comment, resolve
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.identity import history
from stacks.plan import PlannedImage
from tests.attacks.test_hostile_github import moved, send, serving

NAMES = (
    *("$(touch pwned)", "`touch pwned`", "a;touch pwned", "a|touch pwned", "a&&touch pwned", "a\ntouch pwned"),
    *("--upload-pack=touch pwned", "-c core.sshCommand=touch pwned", "--output=pwned", "../../pwned", "a\0b"),
    *("${{ github.token }}", "::set-output name=stack::pwned", "a\r\nstack=pwned", "é" * 200, " ", "'\"\\"),
)
"""Branches, tags and inputs; of each, what runs or writes it would leave a file or an output `pwned`."""


def untouched(folder: Path) -> bool:
    return not list(folder.rglob("*pwned*")) and not (ROOT / "pwned").exists() and not (folder / "output").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["", "local"], ids=["any folder", "a folder of ours"])
def test_inputs_of_a_caller_are_one_refusal(
    name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setattr(resolve, "_all", images_of_local)
    words = [f"--folder={folder or name}", f"--image-name={name}", f"--tag-suffix={name}"]
    assert main(["resolve", *words]) == 1
    refusal = capsys.readouterr().err
    assert refusal.count("\n") == 1, refusal
    assert "\r" not in refusal
    assert untouched(tmp_path)


@cache
def images_of_local() -> tuple[tuple[str, PlannedImage], ...]:
    """Return the images of one stack; those of all take seconds."""
    return tuple(("local", image) for image in plan.make("local").images)


@pytest.mark.parametrize("name", NAMES)
def test_branch_of_any_name_makes_a_tag(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_HEAD_REF", name.replace("\0", ""))
    monkeypatch.delenv(history.BRANCH_VARIABLE, raising=False)
    monkeypatch.setattr(history, "git", lambda *_: "HEAD\n")
    try:
        prefix = history.prefix(ROOT)
    except SlipwayError as error:
        assert "\n" not in str(error)
        return
    assert prefix
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", prefix)


def test_artifacts_of_a_stranger_are_text_of_a_bounded_comment(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}`$(touch pwned)<img src=x>@everyone.txt").write_text("```\n</details>@everyone\n" * 99)
    (tmp_path / "000huge.txt").write_bytes(b"\xff" * (20 << 20))
    (tmp_path / "000folder.txt").mkdir()
    (tmp_path / "000link.txt").symlink_to("/etc/passwd")
    run = {"conclusion": "success", "head_sha": "a" * 40, "html_url": "https://github.example/run"}
    files = [file for file in sorted(tmp_path.glob("*.txt")) if file.is_file() and not file.is_symlink()]
    body = comment.text(run, files[: comment._FILES])
    assert len(body) < 65_536
    assert "<img" not in body
    assert "root:" not in body
    fence = next(line for line in body.splitlines() if line.startswith("````"))
    inside = False
    for line in body.splitlines():
        if line.startswith(fence.removesuffix("text")) and set(line.removesuffix("text")) == {"`"}:
            inside = not inside
        elif not inside:
            assert "@everyone" not in line.replace("touchpwnedimgsrcxeveryone", "")
    assert untouched(tmp_path / "output-of-nothing")


@pytest.mark.parametrize(
    "comments",
    [[{"user": None, "body": None}], [{"user": {}, "body": "x"}], [{"user": {"login": "ghost"}, "body": comment.MARK}]],
)
def test_comment_of_a_removed_account_is_not_ours(comments: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    monkeypatch.setattr(actions, "api", lambda _, path: pages.append(path) or comments * actions.PAGE)
    assert comment._existing(1) is None
    assert len(pages) == comment._PAGES


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def at(url: str) -> None:
        for name, value in {"API_URL": url, "REPOSITORY": "acme/x", "TOKEN": "canary-token"}.items():
            monkeypatch.setenv(f"GITHUB_{name}", value)

    return at


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_token_of_a_job_follows_no_redirect_to_another_host(job: Callable[[str], None], status: int) -> None:
    with (
        serving(lambda handler: send(handler, b"[]")) as other,
        serving(lambda handler: moved(handler, other.url, status)) as own,
    ):
        job(own.url)
        with pytest.raises(SlipwayError) as error:
            actions.api("GET", "pulls")
        assert other.requests == []
        assert "canary" not in str(error.value)


@pytest.mark.parametrize("content", [b"<html>", b"[" * 200_000, b"\xff"])
def test_answer_that_is_no_json_is_one_line(job: Callable[[str], None], content: bytes) -> None:
    with serving(lambda handler: send(handler, content)) as own:
        job(own.url)
        with pytest.raises(
            SlipwayError, match=r"^GET pulls: 127\.0\.0\.1:\d+ responds with something other than JSON$"
        ):
            actions.api("GET", "pulls")


def test_output_of_any_text_sets_one_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    for name in NAMES:
        actions.output("image", json.dumps(name))
        actions.output("image", name)
    lines = (tmp_path / "output").read_text(encoding="utf-8").split("\n")
    assert all(line.startswith("image=") for line in lines[:-1])
