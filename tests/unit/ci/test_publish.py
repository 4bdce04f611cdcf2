"""What a job publishes; of an older commit than the last, nothing."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci import public_state, pulumi_stack
from ci.verbs import publish
from containers.errors import SlipwayError
from containers.evidence import cosign
from stacks.config.signing import SigningConfig
from tests.helpers.sample_repository import Checkout

STATUS = 7


class Stack:
    """A stack whose last update was from a commit, and whose next one ends with a status."""

    def __init__(self, last: str, status: int) -> None:
        self.last, self.status, self.updates = last, status, 0

    def commit(self) -> str:
        return self.last

    def up(self, _: list[str], *, attesting: bool = True) -> int:  # noqa: ARG002
        self.updates += 1
        return self.status

    def export(self) -> dict[str, Any]:
        """Return a state without indexes; the public one is another stand-in's."""
        return {"deployment": {"resources": []}}


def opened(stack: Stack, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``publish`` use a stack and a checkout."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[Stack]:
        yield stack

    monkeypatch.setattr(publish, "ROOT", root)
    monkeypatch.setattr(publish, "make_room", lambda: None)
    monkeypatch.setattr(pulumi_stack, "shared", shared)


def test_publish_of_older_commit_is_refused_before_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path)
    checkout.git("init", "-q", "-b", "main")
    commits = []
    for text in ("older", "later"):
        checkout.commit("README.md", text)
        commits.append(checkout.git("rev-parse", "HEAD"))
    stack = Stack("", STATUS)
    opened(stack, tmp_path, monkeypatch)
    options = argparse.Namespace(stack="local", image="", platform="", to=None)

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


def test_publish_writes_the_public_state_and_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path / "checkout")
    checkout.root.mkdir()
    checkout.git("init", "-q", "-b", "main")
    checkout.commit("README.md", "text")
    opened(Stack("", 0), checkout.root, monkeypatch)
    published = {"z": 1, "a": {"c": 2, "b": 3}}
    images = {"torch": {"ref": "r/torch@sha256:1", "tag": "1-local", "digest": "sha256:1"}}
    monkeypatch.setattr(public_state, "public", lambda *_: published)
    monkeypatch.setattr(public_state, "images", lambda _: images)
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.setenv(name, str(tmp_path / name))
    assert publish.run(argparse.Namespace(stack="local", image="torch", platform="", to=tmp_path)) == 0
    assert (tmp_path / "local.json").read_text() == json.dumps(published, indent=1, sort_keys=True) + "\n"
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "digest=sha256:1\ntag=1-local\n"
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text() == (
        "### local\n\n| image | published as |\n| --- | --- |\n| torch | `r/torch@sha256:1`<br>`1-local` |\n"
    )


def test_statements_of_an_earlier_job_are_not_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow ``attest`` signs all that it gets."""
    (tmp_path / "statements").write_text("of an earlier job")
    monkeypatch.setattr(publish, "Checkout", SimpleNamespace(here=lambda: SimpleNamespace(state=tmp_path)))
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("SLIPWAY_WORKFLOW", "acme/images/.github/workflows/up.yml@refs/heads/main")
    monkeypatch.setenv(cosign.STATEMENTS, "")
    identity = "https://github.com/acme/images/.github/workflows/attest.yml@refs/heads/main"
    file = publish.left_statements(SigningConfig(identity=identity, issuer="https://issuer.example"))
    assert file == Path(os.environ[cosign.STATEMENTS]) == tmp_path / "statements"
    publish.hand_over(file, tmp_path / "to")
    assert not (tmp_path / "to").exists()
