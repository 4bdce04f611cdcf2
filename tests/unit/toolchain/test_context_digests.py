"""Digests of build contexts: which files are read again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from toolchain.provider.build_context import Digests


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, in order."""
    names: list[str] = []
    digest = hashlib.file_digest

    def noted(file: Any, algorithm: Any) -> Any:
        names.append(Path(file.name).name)
        return digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    return names


def test_digest_reads_a_settled_file_once(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "file").write_text("one")
    digests = Digests()
    monkeypatch.setattr("toolchain.provider.build_context._SETTLED_SECONDS", 3600)
    first = digests.context(str(tmp_path), str(tmp_path / "Dockerfile"))
    assert digests.context(str(tmp_path), str(tmp_path / "Dockerfile")) == first
    assert reads.count("file") == 2
    monkeypatch.setattr("toolchain.provider.build_context._SETTLED_SECONDS", -1)
    assert digests.context(str(tmp_path), str(tmp_path / "Dockerfile")) == first
    assert digests.context(str(tmp_path), str(tmp_path / "Dockerfile")) == first
    assert reads.count("file") == 3
    status = (tmp_path / "file").stat()
    (tmp_path / "file").write_text("two")
    os.utime(tmp_path / "file", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.context(str(tmp_path), str(tmp_path / "Dockerfile")) != first
