"""The contracts with upstreams: each thing that is fetched has one, and each row names a file of ours and can be checked."""

from __future__ import annotations

import re
from pathlib import Path

from maintenance.upstream import pins
from maintenance.upstream.contract import CHECKS, Contract, Row, components, contract
from maintenance.upstream.findings import findings
from maintenance.upstream.upstream_files import FolderFiles
from stacks import plan
from stacks.config.stack_file import ROOT, stack_names
from stacks.spec import Outside
from tests.helpers.every import every

DOCKERFILES = ROOT / "dockerfiles"

PACKAGES = {"DOWNLOADS_NVIDIA", "DOWNLOADS_CONDA", "DOWNLOADS_ROCKY", "DOWNLOADS_UBI"}
"""Package repositories: their package managers know their layout."""

DISTRIBUTIONS = {"debian", "ubuntu"}
"""Parents that are a distribution alone."""

EVERY = {name: contract(name) for name in components()}
ROWS = [(name, row) for name, terms in EVERY.items() for row in terms.row]


def looks_inside(row: Row) -> bool:
    """Return whether a row's check says more of its file than that it is there."""
    return any(getattr(row, check) not in {None, ""} for check in CHECKS)


def sources() -> dict[str, str]:
    """Return the repository of each component in dockerfiles/wheels/sources."""
    texts = {path.name: path.read_text() for path in (DOCKERFILES / "wheels/sources").iterdir()}
    return {name: re.findall(r"^repository=(\S+)$", text, re.MULTILINE)[0] for name, text in texts.items()}


@every("name", sorted(path.name for path in (DOCKERFILES / "wheels/recipes").iterdir()))
def test_recipe_has_contract_with_its_source(name: str) -> None:
    assert EVERY[name].repository == sources()[name]


def test_fetched_repository_has_contract() -> None:
    scripts = [path for path in DOCKERFILES.rglob("*") if path.is_file() and path.name != "README.md"]
    fetched = {
        repository
        for path in scripts
        for repository in re.findall(r"/fetch-source ([\w-]+/[\w-]+) ", path.read_text(errors="replace"))
    }
    assert len(fetched) > 6
    assert fetched <= {terms.repository for terms in EVERY.values()}


def test_outside_parent_has_contract() -> None:
    parents = {
        parent.reference.partition(":")[0]
        for stack in stack_names()
        for spec in plan.resolve(stack)[1]
        for parent in spec.parents.values()
        if isinstance(parent, Outside)
    }
    assert len(parents) > 2
    assert parents - DISTRIBUTIONS == {pin.parent for terms in EVERY.values() for pin in terms.pin if pin.parent}


def test_download_has_contract() -> None:
    declared = {
        name
        for path in DOCKERFILES.glob("*/Dockerfile")
        for name in re.findall(r"^ARG (DOWNLOADS_\w+)", path.read_text(), re.MULTILINE)
    }
    assert declared - PACKAGES == {terms.download for terms in EVERY.values() if terms.download}


@every("name", EVERY)
def test_contract_has_pins(name: str) -> None:
    assert pins.tags(EVERY[name])


def test_stands_is_a_file_of_ours() -> None:
    assert [(name, row.stands) for name, row in ROWS if not (ROOT / row.stands).is_file()] == []


def test_line_or_source_is_named() -> None:
    unknown = [
        (name, row.path)
        for name, row in ROWS
        if (row.pattern or row.variable or row.symbol) and not (row.line or row.source)
    ]
    assert unknown == []


def test_rows_are_about_some_version() -> None:
    assert [(name, row.path) for name, row in ROWS if row.since and not row.applies(row.since)] == []


def test_rows_can_be_checked(tmp_path: Path) -> None:
    # A file that is only to be there may be looked into by another row.
    for name, row in sorted(ROWS, key=lambda row: not looks_inside(row[1])):
        path = tmp_path / name / row.path.replace("*", "x")
        path.parent.mkdir(parents=True, exist_ok=True)
        if looks_inside(row):
            path.write_text("")
        elif not path.exists():
            path.mkdir()
    results = {
        (name, row): not finding.missing
        for name, every in EVERY.items()
        for row, finding in zip(every.row, findings(every.row, FolderFiles(tmp_path / name)), strict=True)
    }
    # Of an empty file, only what it must not have is true.
    assert [
        place
        for place, holds in results.items()
        if holds == bool(place[1].pattern or place[1].variable or place[1].symbol)
    ] == []


@every("name", EVERY)
def test_tags_of_pins_have_rows(name: str) -> None:
    terms: Contract = EVERY[name]
    used: set[Row] = {row for tag in pins.tags(terms) for row in terms.rows(tag)}
    assert used
