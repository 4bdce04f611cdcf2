"""What `make up` and `make preview` print of the events of Pulumi's engine."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers import color
from containers.dockerfile import context
from stacks.differences import file_list
from tests.helpers.every import every
from tests.helpers.json_shape import differing
from toolchain.pulumi_run import run_progress
from toolchain.pulumi_run.run_progress import RunProgress
from toolchain.pulumi_run.run_report import RunReport

VARIANT = "slipway:image:ImageVariant"
IMAGE = "docker:index/image:Image"
PUSH = "pulumi-python:dynamic/image:CompressedPush"
URN = "urn:pulumi:t::slipway::"

Report = Callable[..., list[str]]


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], log: io.StringIO, tmp_path: Path) -> Report:
    """Return the lines that are printed of some events."""

    def follow(*events: dict[str, Any] | str, preview: bool = False) -> list[str]:
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        with RunProgress() as progress:
            RunReport(progress, log, tmp_path, preview=preview).follow(f"{line}\n" for line in lines)
        return capsys.readouterr().out.splitlines()

    return follow


def step(kind: str, name: str, op: str, before: Any = None, after: Any = None, *, parent: str = "") -> dict[str, Any]:
    """Return the event of a step that begins."""
    sides = {
        side: None if inputs is None else {"inputs": inputs, "outputs": {}, "parent": parent}
        for side, inputs in (("old", before), ("new", after))
    }
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": f"{URN}{kind}::{name}", "type": kind, **sides}}}


def ended(kind: str, name: str, op: str, outputs: Any, before: Any = None) -> dict[str, Any]:
    sides = {"old": {"inputs": {}, "outputs": before or {}}, "new": {"inputs": {}, "outputs": outputs}}
    return {"resOutputsEvent": {"metadata": {"op": op, "urn": f"{URN}{kind}::{name}", "type": kind, **sides}}}


def message(text: str, severity: str, name: str = "", *, ephemeral: bool = False) -> dict[str, Any]:
    urn = {"urn": f"{URN}{IMAGE}::{name}"} if name else {}
    return {"diagnosticEvent": {"message": text, "severity": severity, "ephemeral": ephemeral, **urn}}


def summary(**changes: int) -> dict[str, Any]:
    return {"summaryEvent": {"durationSeconds": 3, "resourceChanges": changes}}


def contents(**different: Any) -> dict[str, Any]:
    return {"args": {"V": "1"}, "files": {"a": "f1"}, "parents": {}, "tag": "t1", **different}


def test_report_of_changed_image_names_old_and_new(report: Report) -> None:
    after = contents(args={"V": "2"}, files={"b": "f2"}, parents={"BASE": "r:5/x/base:t2"}, tag="t2")
    assert report(step(VARIANT, "torch", "update", contents(), after)) == [
        "~ torch",
        "    ~ args V: 1 -> 2",
        "    + files b: f2",
        "    + parents BASE: r:5/x/base:t2",
        "    ~ tag: t1 -> t2",
        "    - files a: f1",
    ]


def test_report_of_new_image_names_tag_parents_packages(report: Report) -> None:
    parents = {"BASE_IMAGE": "r:5/x/base:t1", "WHEELS": "r:5/x/wheels:t1"}
    events = [
        step(VARIANT, "base", "create", None, contents()),
        step(VARIANT, "torch", "create", None, contents(parents=parents, tag="t2", packages={"einops": "0.8.2"})),
    ]
    assert report(*events, preview=True) == [
        "+ base: t1",
        "+ torch: t2, from base, wheels",
        "    + packages einops: 0.8.2",
    ]


def test_report_names_our_resources_in_words(report: Report) -> None:
    ours = step("pulumi-python:dynamic/image:VerifiedParent", "debian:12", "create", None, {})
    theirs = step("kubernetes:core/v1:Namespace", "runners", "create", None, {})
    assert report(ours, theirs, preview=True) == [
        "+ verified parent debian:12",
        "+ kubernetes:core/v1:Namespace runners",
    ]


def test_report_of_unchanged_images_is_one_line(report: Report) -> None:
    events = [step(VARIANT, name, "same", contents(), contents()) for name in ("base", "torch")]
    assert report(*events, summary(same=4)) == ["Unchanged: base, torch", "Resources: 4 unchanged (3 s)"]


def test_report_of_build_ends_with_time_and_digest(report: Report) -> None:
    parent = f"{URN}{VARIANT}::torch"
    events = [
        step(VARIANT, "torch", "create", None, contents()),
        step(IMAGE, "torch", "create", None, {"imageName": "r/torch:t1"}, parent=parent),
        ended(IMAGE, "torch", "create", {"repoDigest": "r/torch@sha256:1"}),
        step(PUSH, "torch-push", "create", None, {}, parent=parent),
        ended(PUSH, "torch-push", "create", {"pushed": "r/torch@sha256:2"}),
        summary(create=3),
    ]
    lines = ["+ torch: t1", "torch: done in 0 s: sha256:1", "torch-push: done in 0 s: sha256:2"]
    assert report(*events) == [*lines, "Resources: 3 created (3 s)"]


def test_report_of_new_parent_digest_names_it(report: Report) -> None:
    build = [{"build": {"args": {"BASE_IMAGE": f"r/base@sha256:{digit}"}}} for digit in "12"]
    events = [
        step(VARIANT, "torch", "same", contents(), contents()),
        step(IMAGE, "torch", "update", *build, parent=f"{URN}{VARIANT}::torch"),
        summary(update=1, same=1),
    ]
    assert report(*events, preview=True) == [
        "~ docker:index/image:Image torch",
        "    ~ build args BASE_IMAGE: r/base@sha256:1 -> r/base@sha256:2",
        "Resources: 1 to update, 1 unchanged (3 s)",
    ]


CHECKS = f"{VARIANT}$slipway:checks:Checks"
CHECKED: list[dict[str, Any]] = [{"args": {}, "files": {"torch/checks/one": digit}} for digit in "12"]


def checks(op: str, before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the events of a step of the checks of `torch`, and of their build."""
    component = step(CHECKS, "torch-checks", op, before, after, parent=f"{URN}{VARIANT}::torch")
    component["resourcePreEvent"]["metadata"]["type"] = "slipway:checks:Checks"
    builds = ({"imageName": "r/torch_checks:t1", "build": {"context": context}} for context in "ab")
    build = step(IMAGE, "torch-checks", op, *builds, parent=f"{URN}{CHECKS}::torch-checks")
    return [component, build]


def test_report_of_changed_check_is_its_file(report: Report) -> None:
    events = [step(VARIANT, "torch", "same", contents(), contents()), *checks("update", *CHECKED)]
    passed = ended(IMAGE, "torch-checks", "update", {"repoDigest": "sha256:1"})
    passed["resOutputsEvent"]["metadata"]["urn"] = f"{URN}{CHECKS}${IMAGE}::torch-checks"
    assert report(*events, passed, summary(update=2, same=2)) == [
        "~ torch: checks run again",
        "    ~ files torch/checks/one: 1 -> 2",
        "torch-checks: passed in 0 s",
        "Resources: 2 updated, 2 unchanged (3 s)",
    ]


@pytest.mark.parametrize("op", ["update", "create"])
def test_report_of_changed_image_covers_its_checks(report: Report, op: str) -> None:
    before = contents() if op == "update" else None
    events = [step(VARIANT, "torch", op, before, contents(tag="t2")), *checks(op, *CHECKED)]
    assert report(*events, preview=True) == (["~ torch", "    ~ tag: t1 -> t2"] if op == "update" else ["+ torch: t2"])


def test_report_of_unchanged_checks_is_nothing(report: Report) -> None:
    events = [step(VARIANT, "torch", "same", contents(), contents()), *checks("same", CHECKED[0], CHECKED[0])]
    assert report(*events, summary(same=4)) == ["Unchanged: torch", "Resources: 4 unchanged (3 s)"]


def test_report_of_removed_checks_names_the_image(report: Report) -> None:
    events = [step(VARIANT, "torch", "same", contents(), contents()), *checks("delete", CHECKED[0], None)]
    assert report(*events[:2]) == ["- torch: no checks"]


def test_report_of_failed_build_has_whole_error(report: Report, log: io.StringIO) -> None:
    error = "error building image r/torch:t1: step 'RUN false' failed:\n    line 1\n    line 2"
    events = [
        message("RUN false", "info", "torch", ephemeral=True),
        message(error, "error", "torch"),
        message("update failed", "error"),
    ]
    assert report(*events) == f"error: torch: {error}".splitlines()
    assert log.getvalue() == f"torch: RUN false\ntorch: {error}\npulumi: update failed\n"


def test_report_of_failed_program_is_its_error(report: Report) -> None:
    ended = message("an unhandled error occurred: program exited with non-zero exit code: 1", "error")
    assert report(message("a on b on a", "error"), ended) == ["error: a on b on a"]
    assert report(ended) == [f"error: {ended['diagnosticEvent']['message']}"]


def test_report_of_failed_resource_begins_with_the_cause(report: Report) -> None:
    error = "Exception calling application: r:5/x/torch@sha256:0: not tagged because of a fault:\n  /a: missing b\n"
    assert report(message(error, "error", "torch-tag")) == [
        "error: torch-tag: r:5/x/torch@sha256:0: not tagged because of a fault:",
        "  /a: missing b",
    ]


def test_report_of_cancelled_run_has_no_traceback(report: Report, log: io.StringIO) -> None:
    """Nor Pulumi's counts and error: the last line says what was changed."""
    notice = {"stdoutEvent": {"message": "^C received; cancelling. ...", "color": "always"}}
    where, canceled = message("KeyboardInterrupt", "info#err"), {"errorEvent": {"error": "update canceled"}}
    assert report(notice, where, canceled, summary(create=1)) == ["^C received; cancelling. ..."]
    assert "KeyboardInterrupt" in log.getvalue()


def test_report_repeats_no_warning(report: Report) -> None:
    warning = message("using pulumi-resource-docker from $PATH at /p\n", "warning")
    assert report(warning, message("registering", "debug"), warning) == [
        "warning: using pulumi-resource-docker from $PATH at /p"
    ]


def test_report_of_replaced_resource_is_one_entry(report: Report) -> None:
    inputs = {"name": "a", "key": "[secret]", "__provider": "p1"}, {"name": "b", "key": "[secret]", "__provider": "p2"}
    events = [
        step("aws:ecr/repository:Repository", "torch", op, *inputs)
        for op in ("create-replacement", "replace", "delete-replaced")
    ]
    assert report(*events) == ["+- aws:ecr/repository:Repository torch", "    ~ name: a -> b"]


def test_report_of_outputs_has_changed_ones_alone(report: Report) -> None:
    before = {"images": {"torch": {"tag": "t1"}}, "runners": {"label": "a", "group": "g"}}
    after = {
        "images": {"torch": {"tag": "t2"}},
        "runners": {"label": "b", "group": "g"},
        "signed": "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
    }
    stack = ended("pulumi:pulumi:Stack", "slipway-t", "same", after, before)
    assert report(stack, summary()) == ["Outputs:", "    ~ runners label: a -> b", "Resources: none changed (3 s)"]


def test_report_of_secret_masks_it(report: Report) -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
    after = {"key": secret, "list": [secret, 1]}
    stack = ended("pulumi:pulumi:Stack", "slipway-t", "same", after, {"key": "clear"})
    assert report(stack, summary())[1:3] == ["    ~ key: clear -> [secret]", '    + list: ["[secret]", 1]']


def test_report_of_long_values_has_what_differs(report: Report) -> None:
    start = "".join(f"{number:04}" for number in range(100))
    sides = {"script": f"{start}one"}, {"script": f"{start}two{'z' * 300}"}
    (_, line) = report(step("aws:ec2/instance:Instance", "builder", "update", *sides))
    lead = f"...{start[-20:]}"
    assert line == f"    ~ script: {lead}one -> {lead}two{'z' * 177}..."


def test_report_as_json_is_as_documented(log: io.StringIO, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": "hunter2"}
    events = [
        step(VARIANT, "torch", "update", contents(), contents(args={"V": "2", "T": secret}, tag="t2")),
        step(VARIANT, "tools", "create", None, contents(tag="t3")),
        step(VARIANT, "wheel", "same", contents(), contents()),
        step("aws:ecr/repository:Repository", "r", "create", None, {"name": "r"}),
        message("slow", "warning", "torch"),
        ended("pulumi:pulumi:Stack", "slipway-t", "update", {"a": 2}, {"a": 1}),
        summary(update=1, create=2, same=1),
    ]
    with RunProgress(quiet=True) as progress:
        report = RunReport(progress, log, tmp_path, preview=True)
        report.follow(json.dumps(event) for event in events)
    document = report.as_json()
    assert capsys.readouterr().out == ""
    assert differing("preview", {"stack": "t", **document}) == []
    assert document == {
        "changes": [
            {
                "kind": "image",
                "name": "torch",
                "operation": "update",
                "tag": "t2",
                "values": [
                    {"path": ["args", "V"], "old": "1", "new": "2"},
                    {"path": ["args", "T"], "old": None, "new": "[secret]"},
                    {"path": ["tag"], "old": "t1", "new": "t2"},
                ],
            },
            {"kind": "image", "name": "tools", "operation": "create", "tag": "t3", "values": []},
            {"kind": "aws:ecr/repository:Repository", "name": "r", "operation": "create", "values": []},
        ],
        "unchanged": ["wheel"],
        "outputs": [{"path": ["a"], "old": 1, "new": 2}],
        "warnings": ["torch: slow"],
        "counts": {"create": 2, "update": 1, "replace": 0, "delete": 0, "same": 1},
    }


def test_report_of_failed_run_keeps_errors(log: io.StringIO, tmp_path: Path) -> None:
    events = [json.dumps(message("no such step", "error", "torch")), "error: no stack named 't'\n"]
    with RunProgress(quiet=True) as progress:
        report = RunReport(progress, log, tmp_path, preview=True)
        report.follow(events)
    assert report.errors == ["torch: no such step", "no stack named 't'"]


def test_report_of_removed_image_is_one_line(report: Report) -> None:
    events = [
        step(IMAGE, "torch", "delete", {"imageName": "r/torch:t1"}, parent=f"{URN}{VARIANT}::torch"),
        step(VARIANT, "torch", "delete", contents()),
    ]
    assert report(*events) == ["- torch"]


def test_report_prints_line_that_is_no_event(report: Report) -> None:
    assert report("error: no stack named 't'", "", "[1]") == ["error: no stack named 't'", "[1]"]


def test_report_of_slow_resource_has_progress(log: io.StringIO, tmp_path: Path) -> None:
    kind = "aws:ec2/instance:Instance"
    begun = step(kind, "builder", "create", None, {})
    begun["resourcePreEvent"]["metadata"]["provider"] = "aws"
    with RunProgress() as progress:
        report = RunReport(progress, log, tmp_path, preview=False)
        report.follow([json.dumps(begun)])
        assert list(progress._begun) == [f"{kind} builder"]
        report.follow([json.dumps(ended(kind, "builder", "create", {}))])
        assert not progress._begun


def test_progress_in_log_names_step_and_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_progress, "HEARTBEAT_SECONDS", 0.01)
    with RunProgress() as progress:
        progress.begin("torch")
        progress.status("torch", "\x1b[1mRUN pip\x1b[0m\r")
        progress.status("other", "not running")
        while not (output := capsys.readouterr().out):
            pass
        progress.end("torch")
    assert output.splitlines()[0] == "  still running: torch (0 s): RUN pip"


def test_report_of_changed_file_has_its_lines(report: Report, tmp_path: Path) -> None:
    for number, content in enumerate((b"one\nPASSWORD=a\n", b"two\nPASSWORD=b\x1b[2J\n")):
        file = tmp_path / f".slipway/contexts/{number}/torch/setup"
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    sides = [
        contents(files={"torch/setup": context.digest(content)[:12]})
        for content in (b"one\nPASSWORD=a\n", b"two\nPASSWORD=b\x1b[2J\n")
    ]
    lines = report(step(VARIANT, "torch", "update", *sides), preview=True)
    assert lines[2:] == [
        "    torch/setup",
        "        - one",
        "        - PASSWORD=***",
        "        + two",
        "        + PASSWORD=***",
    ]


def test_report_after_failed_run_compares_with_published(report: Report) -> None:
    published, failed = contents(), contents(args={"V": "2"}, tag="t2")
    outputs = {
        "plan": {"torch": {key: value for key, value in published.items() if key != "files"}},
        "planFiles": {"torch": file_list(published["files"])},
    }
    stack = step("pulumi:pulumi:Stack", "slipway-t", "same", {}, {})
    stack["resourcePreEvent"]["metadata"]["old"]["outputs"] = outputs
    changed = report(stack, step(VARIANT, "torch", "same", failed, failed), summary(same=1))
    assert changed == ["~ torch", "    ~ args V: 1 -> 2", "    ~ tag: t1 -> t2", "Resources: 1 unchanged (3 s)"]
    back = report(stack, step(VARIANT, "torch", "update", failed, published), summary(update=1))
    assert back == ["Unchanged: torch", "Resources: 1 updated (3 s)"]


@every(
    "variables, terminal, colored",
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
    ],
)
def test_color_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, colored: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    assert color.wanted(stream) is colored


def test_progress_in_color_escapes_what_steps_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with RunProgress() as progress:
        progress.say("+ new\x1b]0;t\x07", "error: \x1b[31mred\x1b[0m\n    more", "plain")
    assert capsys.readouterr().out == (
        "\x1b[32m+ new\\x1b]0;t\\x07\x1b[0m\n\x1b[1;31merror: red\x1b[0m\n    more\nplain\n"
    )
