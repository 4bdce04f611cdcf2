"""``slipway``: what it prints, and one line for each mistake."""

from __future__ import annotations

import json

import pytest

from cli import stack_checks
from cli.commands import look
from cli.main import main
from stacks import plan
from stacks.config.stack_file import read_stack, stack_names
from stacks.errors import SlipwayError
from stacks.tags import parse


def test_list_names_every_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == stack_names()
    assert ["local", "local", "torch"] in rows


def test_check_passes_for_every_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == stack_names()


def test_check_warns_of_what_no_table_knows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan.make("nccl-cu132", {**read_stack("nccl-cu132"), "nccl": "2.32.3-1"})
    monkeypatch.setattr(stack_checks, "stack_names", lambda: ["nccl-cu132"])
    monkeypatch.setattr(plan, "make", lambda _: made)
    assert main(["check"]) == 0
    said = "warning: nccl-cu132: slipway:nccl: NVIDIA's apt archive may not have 2.32.3-1+cuda13.2; "
    assert capsys.readouterr().err.startswith(said)


def test_show_json_is_the_resolved_graph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_MIRRORS", raising=False)
    assert main(["show", "local", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["stack"] == "local"
    (image,) = shown["images"]
    whole = {"name", "tag", "context", "dockerfile", "target", "platform", "product", "args", "parents", "labels"}
    assert set(image) == whole
    assert image["parents"] == {"BASE_IMAGE": "debian:bookworm-slim"}
    assert image["args"]["TORCH_VERSION"] == parse(image["tag"])[1].torch
    assert image["labels"]["org.opencontainers.image.title"] == "torch"
    assert not [name for name in image["args"] if name.startswith("LABEL_")]


def test_show_says_the_same_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "local"]) == 0
    assert "TORCH_VERSION=" in capsys.readouterr().out


def test_an_unknown_stack_is_one_line_and_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "lokal"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("there is no stack 'lokal' (did you mean 'local'?)")
    assert len(printed.err.splitlines()) == 1


def test_a_tag_that_is_too_long_names_its_stack_and_image() -> None:
    with pytest.raises(SlipwayError) as caught:
        plan.make("base-cu132", {**read_stack("base-cu132"), "tagSuffix": "t" * 120})
    message = str(caught.value)
    assert message.startswith("stack base-cu132: torch: the tag '")
    assert message.endswith(f"slipway:tagSuffix '{'t' * 120}'")
    assert "\n" not in message


def test_a_mistake_of_the_branch_is_one_line_and_not_one_for_each_stack(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacks.identity.history._branch", lambda _: "///")
    assert main(["check"]) == 1
    assert capsys.readouterr().err == "the branch name '///' has no letter or digit that is valid in a tag; rename it\n"


def test_list_names_the_others_when_one_stack_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "stack_names", lambda: ["local", "lokal"])
    assert main(["list"]) == 1
    printed = capsys.readouterr()
    assert printed.out.split()[0] == "local"
    assert printed.err.startswith("there is no stack 'lokal'")
