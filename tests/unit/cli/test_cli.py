"""``slipway``: what it prints, and one line for each mistake."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli import stack_checks
from cli.commands import look
from cli.main import SECTIONS, main
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.stack_file import ROOT, misnamed, read_stack, stack_names
from stacks.tags import parse
from tests.helpers.every import every


def test_list_names_every_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["STACK", "FLAVOR", "IMAGES"]
    assert [row[0] for row in rows] == stack_names()
    assert ["local", "local", "torch"] in rows
    both = "base-cu132-multi base torch -> torch-extras for linux/amd64, linux/arm64"
    assert both.split() in rows  # no image of one platform is built on the other's


def test_check_passes_for_every_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == stack_names()


def test_check_of_a_stack_prints_its_line_and_all_mistakes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_checks, "stack_names", lambda: ["local", "local-multi", "gone"])
    assert main(["check", "local"]) == 1
    out, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in out.splitlines()] == ["local"]
    assert err.startswith("there is no stack 'gone'; ")
    assert main(["check", "locl"]) == 1
    assert "did you mean 'local'" in capsys.readouterr().err


def test_check_names_a_file_that_is_no_stacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.a b.yaml").touch()
    monkeypatch.setattr(stack_checks, "misnamed", lambda: misnamed(tmp_path))
    monkeypatch.setattr(stack_checks, "stack_names", lambda: ["local"])
    assert main(["check"]) == 1
    assert capsys.readouterr().err.startswith("stacks/Pulumi.a b.yaml: Pulumi refuses the stack's name 'a b', ")


def test_check_unknown_package_warns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan.make("nccl-cu132", {**read_stack("nccl-cu132"), "nccl": "2.32.3-1"})
    monkeypatch.setattr(stack_checks, "stack_names", lambda: ["nccl-cu132"])
    monkeypatch.setattr(plan, "make", lambda _, **__: planned)
    assert main(["check"]) == 0
    message = "warning: nccl-cu132: slipway:nccl: NVIDIA's apt archive may not have 2.32.3-1+cuda13.2; "
    assert capsys.readouterr().err.startswith(message)


def test_check_as_json_has_stacks_warnings_and_mistakes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = ["local-multi", "nccl-cu132-multi", "runners-eks", "broken"]
    monkeypatch.setattr(stack_checks, "stack_names", lambda: stacks)
    make = plan.make

    def planned(name: str, **options: Any) -> plan.Plan:
        if name == "broken":
            raise SlipwayError("stack broken: slipway:cuda: 1.0 is not a release")
        return make(name, **options)

    monkeypatch.setattr(plan, "make", planned)
    assert main(["check", "--json"]) == 1
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["mistakes"] == ["stack broken: slipway:cuda: 1.0 is not a release"]
    multi, nccl, runners = result["stacks"]
    assert (multi["images"], multi["platforms"]) == (1, ["linux/amd64", "linux/arm64"])
    assert "may not have 2.30.4-1+cuda13.2 for arm64" in nccl["warnings"][0]
    assert (nccl["images"], nccl["products"]) == (3, 36)
    assert [*runners["runnersPerNode"].values()] == [1]
    assert err == "", "warnings are in the JSON"


def test_show_json_is_the_resolved_graph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_MIRRORS", raising=False)
    assert main(["show", "local", "--json"]) == 0
    resolved = json.loads(capsys.readouterr().out)
    assert resolved["stack"] == "local"
    (image,) = resolved["images"]
    whole = {"name", "tag", "context", "dockerfile", "target", "platform", "product", "args", "parents", "labels"}
    assert set(image) == whole
    assert image["parents"] == {"BASE_IMAGE": "debian:bookworm-slim"}
    assert image["args"]["TORCH_VERSION"] == parse(image["tag"])[1].torch
    assert image["labels"]["org.opencontainers.image.title"] == "torch"
    assert not [name for name in image["args"] if name.startswith("LABEL_")]


def test_show_text_has_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "local"]) == 0
    assert "TORCH_VERSION=" in capsys.readouterr().out


def test_show_unknown_stack_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "lokal"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("there is no stack 'lokal' (did you mean 'local'?)")
    assert len(printed.err.splitlines()) == 1


def test_plan_long_tag_names_its_stack_and_image() -> None:
    with pytest.raises(SlipwayError) as caught:
        plan.make("base-cu132", {**read_stack("base-cu132"), "tagSuffix": "t" * 120})
    message = str(caught.value)
    assert message.startswith("stack base-cu132: torch: the tag '")
    assert message.endswith(f"slipway:tagSuffix '{'t' * 120}'")
    assert "\n" not in message


def test_check_mistake_of_branch_is_one_line_for_all_stacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacks.identity.history._branch", lambda _: "///")
    assert main(["check"]) == 1
    assert capsys.readouterr().err == "the branch name '///' has no letter or digit that is valid in a tag; rename it\n"


def test_check_mistake_of_a_stack_is_not_said_of_those_on_top(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = "stack below: slipway:images: b: on: there is no stack 'three'"

    def planned(name: str, **_: Any) -> plan.Plan:
        raise SlipwayError({"below": mistake, "top": f"stack top: slipway:images: a: on: {mistake}"}[name])

    monkeypatch.setattr(stack_checks, "stack_names", lambda: ["top", "below"])
    monkeypatch.setattr(plan, "make", planned)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == f"{mistake}\n"


def test_list_as_json_has_what_the_lines_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = {each["stack"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed.keys() == {*stack_names()}
    assert listed["local-multi"]["flavor"] == "local"
    assert listed["local-multi"]["images"] == ["torch"]
    assert listed["local-multi"]["platforms"] == ["linux/amd64", "linux/arm64"]
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [[name, each["flavor"]] for name, each in listed.items()]


def test_list_with_a_wrong_stack_names_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "stack_names", lambda: ["local", "lokal"])
    assert main(["list"]) == 1
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["STACK", "local"]
    assert printed.err.startswith("there is no stack 'lokal'")


@every("words", [[], ["-h"], ["--help"], ["show", "--help"]])
def test_help_names_every_section_or_the_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(words)
    printed = capsys.readouterr()
    assert status == (0 if words else 2)
    headings = ["Examples:"] if "show" in words else [f"{heading}:" for heading in SECTIONS]
    assert [line for line in (printed.out + printed.err).splitlines() if line in headings] == headings


def test_command_without_the_words_it_needs_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    of_stacks = (
        "destroy history rollback show inspect start scan new diff verify warm evidence promote export compose job"
    )
    further = ["evidence local", "evidence local torch", "promote local", "promote local torch"]
    for line in (*of_stacks.split(), "key", "runners", "init", "completion", "github --backend s3://a", *further):
        assert main(line.split()) == 2, line
        assert "\nError: Missing argument '" in capsys.readouterr().err, line
    assert main(["affected"]) == main(["github", "init"]) == 2
    assert capsys.readouterr().err.count("\nError: Missing option '--") == 2


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shwo", "local"]) == 2
    assert capsys.readouterr().err.endswith("Error: no such command 'shwo' (did you mean 'show'?)\n")


def test_interrupted_command_ends_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(look, "stack_names", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


@every("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_folder_that_takes_nothing_is_one_line(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "stacks/.new-1")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refused)
    assert main(["new", "other", "--flavor", "local"]) == 1
    assert capsys.readouterr().err == f"stacks/.new-1: {os.strerror(number)}\n"


def test_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"slipway {version}\n"


@every("words", [["destroy", "local"]])
def test_command_that_asks_is_refused_without_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.endswith("There is no terminal to ask on: --yes does it without asking\n")


@every("verb", ["up", "preview", "destroy", "history"])
def test_command_of_unknown_stack_is_one_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "lokal"]) == 1
    assert capsys.readouterr().err.startswith("there is no stack 'lokal' (did you mean 'local'?)")
