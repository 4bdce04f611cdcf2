"""Completion in a shell: commands, options, stacks, images, keys and flavors, without loading the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import completion
from cli.main import main
from stacks import plan
from tests.helpers.every import every


def test_image_names_are_kept_until_stacks_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_CACHE", tmp_path / "cache" / "completion.json")
    names = completion._image_names("nccl-cu121")
    assert list(names) == ["nccl-tests", "torch", "torch-extras"]
    monkeypatch.setattr(plan, "resolve", lambda _: pytest.fail("the stack was resolved again"))
    assert completion._image_names("nccl-cu121") == names
    completion._CACHE.write_text('{"changed": 1, "stacks": {"nccl-cu121": {}}}')
    with pytest.raises(pytest.fail.Exception):
        completion._image_names("nccl-cu121")


@every("shell", completion.SHELLS)
def test_completion_script_is_of_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert f"_SLIPWAY_COMPLETE={shell}_complete" in printed
    assert ("compdef" in printed) is (shell == "zsh")


def test_completion_of_another_shell_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) != 0
    assert "'tcsh' is not one of 'bash', 'zsh'" in capsys.readouterr().err
