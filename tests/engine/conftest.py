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


@pytest.fixture(scope="session")
def first_deployed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose stack is up, and stays so."""
    project = Project(tmp_path_factory.mktemp("deployed") / "project")
    project.add_stack()
    project.up()
    return project


@pytest.fixture
def deployed(first_deployed: Project, tmp_path: Path) -> Project:
    """A copy of a project whose stack is up. Its images are others' too: nothing may delete or replace them."""
    return first_deployed.copy(tmp_path / "project")
