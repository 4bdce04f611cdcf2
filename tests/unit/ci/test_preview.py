"""Which images the preview of a pull request builds, and what its report has."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci import public_state, published_branch, pulumi_stack
from ci.verbs import preview
from containers.dockerfile.context import digest
from containers.errors import SlipwayError
from containers.image.registry_image import Layer
from stacks import flavors, plan
from stacks.identity.history import BRANCH_VARIABLE
from tests.fakes.pulumi_mocks import planned
from tests.helpers.every import every

STATUS = 7


class Stack:
    """A stack that keeps what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def load(self, state: object) -> None:
        self.calls.append(("load", state))

    def preview(self, targets: list[str]) -> tuple[int, str]:
        self.calls.append(("preview", targets))
        return 0, "the preview\n"

    def up(self, targets: list[str]) -> int:
        self.calls.append(("up", targets))
        return STATUS


CONFIG = flavors.load({"flavor": "local"}, "stack t")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A stack of the images `torch` and `extras`."""
    recording = Stack()

    @contextmanager
    def temporary(*_: object) -> Iterator[Stack]:
        yield recording

    images = [planned("torch"), planned("extras", BASE_IMAGE="torch")]
    monkeypatch.setattr(plan, "make", lambda _: plan.Plan("t", CONFIG, tuple(images)))
    monkeypatch.setattr(preview, "make_room", lambda: None)
    monkeypatch.setattr(preview, "comparison", lambda *arguments: f"{arguments[2]}\n")
    monkeypatch.setattr(pulumi_stack, "temporary", temporary)
    monkeypatch.setattr(public_state, "images", lambda published: published["images"])
    monkeypatch.setattr(public_state, "checks", lambda published: published.get("checks", {}))
    monkeypatch.setattr(public_state, "state", lambda _, unbuilt: unbuilt)
    monkeypatch.setenv(BRANCH_VARIABLE, "")
    return recording


@pytest.mark.parametrize(
    ("tags", "status", "calls", "report"),
    [
        (None, STATUS, [("preview", []), ("up", [])], "['torch', 'extras']\nthe preview\n"),
        ({"torch": "abc1234-base", "extras": "abc1234-base"}, 0, [("load", [])], "[]\nNothing would change.\n"),
        (
            {"torch": "abc1234-base", "extras": "older"},
            STATUS,
            [("load", ["extras"]), ("preview", ["extras"]), ("up", ["extras"])],
            "['extras']\nthe preview\n",
        ),
        (
            {"torch": "abc1234-base", "extras": "abc1234-base", "gone": "older"},
            0,
            [("load", []), ("preview", ["gone"])],
            "['gone']\nthe preview\n",
        ),
    ],
)
def test_preview_builds_the_images_with_other_tags(
    tags: Mapping[str, str] | None,
    status: int,
    calls: list[Any],
    report: str,
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = None if tags is None else {"images": {name: {"tag": tag} for name, tag in tags.items()}, "outputs": {}}
    monkeypatch.setattr(published_branch, "stack", lambda *_: published)
    assert preview.run(argparse.Namespace(stack="t", platform="", to=tmp_path)) == status
    assert (stack.calls, (tmp_path / "t.txt").read_text()) == (calls, report)


CHECKS = {"args": {}, "files": {"torch/Dockerfile": digest(b"FROM checks\n")[:12], "check": "1"}}


@pytest.mark.parametrize(
    ("tag", "published", "calls"),
    [
        ("abc1234-base", CHECKS, [("load", [])]),
        (
            "abc1234-base",
            {},
            [("load", ["torch-checks"]), ("preview", ["torch-checks"]), ("up", ["torch-checks"])],
        ),
        (
            "older",
            CHECKS,
            [(call, ["torch", "torch-checks"]) for call in ("load", "preview", "up")],
        ),
    ],
)
def test_preview_runs_changed_checks_again(
    tag: str,
    published: Mapping[str, Any],
    calls: list[Any],
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = [planned("torch", checks={"check": "1"})]
    monkeypatch.setattr(plan, "make", lambda _: plan.Plan("t", CONFIG, tuple(images)))
    state = {"images": {"torch": {"tag": tag}}, "checks": {"torch-checks": published}, "outputs": {}}
    monkeypatch.setattr(published_branch, "stack", lambda *_: state)
    preview.run(argparse.Namespace(stack="t", platform="", to=tmp_path))
    assert stack.calls == calls


@pytest.mark.usefixtures("stack")
def test_report_says_what_a_node_must_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = {name: {"tag": "older", "ref": f"r.example/x/{name}@sha256:{'1' * 64}"} for name in ("torch", "gone")}
    state = {"images": published | {"extras": {"tag": "abc1234-base"}}, "outputs": {"images": published}}
    base = Layer("sha256:b", 30_000_000, "", "", "")

    def image(reference: str, *_: object) -> Any:
        if "gone" in reference:
            raise SlipwayError("no such image")
        above = [replace(base, digest="sha256:t", size=750_000_000)] if "torch" in reference else []
        return SimpleNamespace(layers=[base, *above], config_size=2_000)

    monkeypatch.setattr(preview, "fetch", image)
    monkeypatch.setattr(published_branch, "stack", lambda *_: state)
    preview.run(argparse.Namespace(stack="t", platform="", to=tmp_path))
    (line,) = [each for each in (tmp_path / "t.txt").read_text().splitlines() if "a node" in each]
    assert line.startswith("torch: a node that has the published image keeps 1 of its 2 layers (30 MB) for certain")
    assert "as published 1 layer, 750 MB, 6.0 s at 1 Gbit/s" in line


@every("published, differing", [(None, ["torch"]), ({"outputs": {}}, [])])
def test_comparison_of_nothing_with_nothing_is_empty(published: Any, differing: list[str]) -> None:
    assert preview.comparison("t", published, differing) == ""


@pytest.fixture(scope="module")
def both() -> plan.Plan:
    return plan.make("local-multi", search=False)


@pytest.mark.parametrize("known", [False, True], ids=["new", "published"])
def test_preview_of_platform_leaves_out_the_other(
    both: plan.Plan, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    monkeypatch.setattr(plan, "make", lambda _: both)
    tags = {f"torch-{name}": {"tag": "older"} for name in ("amd64", "arm64")}
    published = {"images": tags, "outputs": {}} if known else None
    monkeypatch.setattr(published_branch, "stack", lambda *_: published)
    preview.run(argparse.Namespace(stack="t", platform="linux/arm64", to=tmp_path))
    images = ["torch-arm64", "torch-arm64-checks"]
    assert stack.calls == [(call, images) for call in (("load",) if known else ()) + ("preview", "up")]
    assert (tmp_path / "t-arm64.txt").read_text() == "['torch-arm64']\nthe preview\n"
