"""A job of an older commit than the last publishes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ci import pulumi_stack
from ci.verbs import publish
from stacks.errors import SlipwayError
from tests.helpers.sample_repository import Checkout

STATUS = 7


class Stack:
    """A stack whose last update was from a commit, and whose next one fails."""

    def __init__(self, last: str) -> None:
        self.last, self.updates = last, 0

    def commit(self) -> str:
        return self.last

    def up(self, _: list[str]) -> int:
        self.updates += 1
        return STATUS


def test_publish_of_older_commit_is_refused_before_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path)
    checkout.git("init", "-q", "-b", "main")
    commits = []
    for text in ("older", "later"):
        checkout.commit("README.md", text)
        commits.append(checkout.git("rev-parse", "HEAD"))
    stack = Stack("")

    @contextmanager
    def shared(*_: object) -> Iterator[Stack]:
        yield stack

    monkeypatch.setattr(publish, "ROOT", tmp_path)
    monkeypatch.setattr(publish, "make_room", lambda: None)
    monkeypatch.setattr(pulumi_stack, "shared", shared)
    options = argparse.Namespace(stack="local", image="", to=None)

    stack.last = commits[0]
    assert publish.run(options) == STATUS
    checkout.git("checkout", "-q", commits[0])
    stack.last = commits[1]
    with pytest.raises(SlipwayError) as caught:
        publish.run(options)
    assert str(caught.value) == (
        f"stack local: the last update was from {commits[1][:7]}, a later commit than {commits[0][:7]}; "
        "start the workflow `publish` on the current main"
    )
    assert stack.updates == 1
