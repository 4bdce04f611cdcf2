"""Fixtures of the engine tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh project with an empty stack."""
    project = Project(tmp_path / "project")
    project.add_stack()
    return project
