"""The builder's power: what is asked of it by ssh, a stand-in here, and what its answers mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.runners.ec2.builder import power, ssh_config
from components.runners.ec2.builder.builder_instance import BuilderInstance
from containers.errors import SlipwayError

START, STOP = "start", "stop"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have a machine that starts and stops, without waits, and an ssh on PATH; return what the machine is told."""
    calls: list[str] = []

    def started(_self: BuilderInstance, _end: float) -> str:
        calls.append(START)
        return "i-0abc"

    monkeypatch.setattr(BuilderInstance, "__init__", lambda *_: None)
    monkeypatch.setattr(BuilderInstance, "start", started)
    monkeypatch.setattr(BuilderInstance, "stop", lambda _: calls.append(STOP))
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(ssh_config, "folder", lambda *_: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return calls


def answer(folder: Path, script: str) -> Path:
    """Have ssh answer by a script; return the file that has its arguments, a line for each time."""
    (folder / "ssh").write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\n{script}\n')
    (folder / "ssh").chmod(0o755)
    return folder / "asked"


def test_start_waits_until_the_builder_can_build(tmp_path: Path, asked: list[str]) -> None:
    file = answer(tmp_path, f'[ "$(wc -l <{tmp_path}/asked)" -ge 3 ]')
    power.start("eu-north-1", "acme-builder")
    assert asked == [START]
    (line,) = set(file.read_text().splitlines())
    assert len(file.read_text().splitlines()) == 3
    assert line.startswith("-F .slipway/builder/acme-builder/config")
    assert line.endswith("slipway-builder slipway-ready")


def test_builder_that_never_can_is_stopped_and_says_why(tmp_path: Path, asked: list[str]) -> None:
    file = answer(tmp_path, '[ "$5" = exit ] || { echo "no volume"; exit 3; }')
    with pytest.raises(SlipwayError, match=r"^the builder acme-builder \(i-0abc\) cannot build: no volume$"):
        power.start("eu-north-1", "acme-builder")
    assert asked == [START, STOP]
    assert file.read_text().splitlines()[-1].endswith("-O exit slipway-builder")


def test_builder_that_ssh_cannot_reach_is_one_line(tmp_path: Path, asked: list[str]) -> None:
    answer(tmp_path, f'echo "no session: denied" >{tmp_path}/refused; exit 255')
    with pytest.raises(SlipwayError, match=r"^the builder cannot be reached: no session: denied$"):
        power.start("eu-north-1", "acme-builder")
    assert asked == [START]


def test_builder_that_is_silent_is_given_up_with_the_way_to_look(tmp_path: Path, asked: list[str]) -> None:
    answer(tmp_path, "exit 1")
    with pytest.raises(SlipwayError, match=r"does not answer: slipway-ready ended with 1; .*--target i-0abc`$"):
        power.start("eu-north-1", "acme-builder", seconds=-1)
    answer(tmp_path, "echo 'Connection timed out' >&2; exit 255")
    with pytest.raises(SlipwayError, match="does not answer: Connection timed out; log in to it with"):
        power.start("eu-north-1", "acme-builder", seconds=-1)
    assert asked == [START, START]
