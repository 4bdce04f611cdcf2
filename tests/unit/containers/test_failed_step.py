"""The line of a failed step: by what engines say, in the Dockerfile that a person edits."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.dockerfile.failed_step import ORIGINS, place
from tests.helpers.every import every

DOCKERFILE = """FROM scratch AS a
# a comment
RUN echo one && \\
    # inside
    false

SHELL ["/bin/bash", "-c"]
RUN false
RUN ["/bin/sh", "-c", "exit 3"]
RUN echo "quoted" >&2; exit 4
FROM a
RUN false
"""


@every(
    "error, line",
    [
        ('process "/bin/sh -c echo one &&     false" did not complete successfully: exit code: 1', "3"),
        ("executor failed running [/bin/sh -c echo one &&     false]: exit code: 1", "3"),
        ('process "/bin/bash -c false" did not complete successfully: exit code: 1', "8 or 12"),
        ('process "/bin/sh -c exit 3" did not complete successfully: exit code: 3', "9"),
        (
            'failed to solve: process "/bin/bash -c echo \\"quoted\\" >&2; exit 4" did not complete successfully: exit code: 4',
            "10",
        ),
    ],
)
def test_place_of_failed_run_is_its_line(tmp_path: Path, error: str, line: str) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(DOCKERFILE)
    assert place(error, tmp_path, dockerfile) == f"{dockerfile}:{line}: "


def test_place_is_in_the_dockerfile_of_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, source = tmp_path / "contexts/0123", tmp_path / "image/Dockerfile"
    for each in (folder, source.parent, tmp_path / ORIGINS):
        each.mkdir(parents=True)
    source.write_text("# more lines\n" + DOCKERFILE)
    (tmp_path / ORIGINS / "0123").write_text(str(source))
    monkeypatch.chdir(tmp_path)
    error = 'process "/bin/sh -c exit 3" did not complete successfully: exit code: 3'
    assert place(error, folder, folder / "Dockerfile") == "image/Dockerfile:10: "


@every(
    "error",
    [
        "no space left on device",
        'process "/bin/sh -c other" did not complete successfully: exit code: 1',
        'process "\\" did not complete successfully: ',
    ],
)
def test_place_of_other_error_is_empty(tmp_path: Path, error: str) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    assert place(error, tmp_path, tmp_path / "Dockerfile") == ""
    assert place(error, tmp_path, tmp_path / "missing") == ""
