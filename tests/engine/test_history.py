"""`slipway history`: a stack's updates, as the backend has them."""

from __future__ import annotations

import json

from tests.engine.project import Project


def test_history_lists_updates_with_results(project: Project) -> None:
    assert json.loads(project.stacks("history", "t", "--json")) == []
    project.up()
    project.write("dockerfiles/link0/Dockerfile", "FROM scratch\nCOPY link0/gone /\n")
    assert project.up(check=False).returncode != 0
    project.pulumi("destroy", "-s", "t", "--yes")
    updates = json.loads(project.stacks("history", "t", "--json"))
    assert [(each["kind"], each["result"]) for each in updates] == [
        ("destroy", "succeeded"),
        ("update", "failed"),
        ("update", "succeeded"),
    ]
    assert updates[-1]["changes"]["create"] >= 2
    head, *rows = project.stacks("history", "t").splitlines()
    assert head.split() == ["UPDATE", "WHEN", "KIND", "RESULT", "COMMIT", "CHANGES"]
    assert [row.split()[3:5] for row in rows] == [
        ["destroy", "succeeded"],
        ["update", "failed"],
        ["update", "succeeded"],
    ]
