"""Mutations of the product: which there are, and what a mutated source is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutations import FOLDERS, mutations, outcome, replace

SOURCE = """\
def safe(name, pod, online):
    if name and pod.lives and name in online:
        refuse(name, quietly=False, timeout=3)
    return run(["rm", "--force"])
"""
MUTANTS = {
    "if pod.lives and name in online:",
    "if name and name in online:",
    "if name and pod.lives:",
    "if name or pod.lives or name in online:",
    "if name and pod.lives and (name not in online):",
    "refuse(name, timeout=3)",
    "refuse(name, quietly=True, timeout=3)",
    "pass",
    "run(['--force'])",
    "run(['rm'])",
}


def test_mutations_drop_operands_options_and_statements(tmp_path: Path) -> None:
    (tmp_path / "safe.py").write_text(SOURCE)
    sources = {replace(SOURCE, each.node, each.text) for each in mutations(tmp_path, Path("safe.py"))}
    before = set(ast.unparse(ast.parse(SOURCE)).splitlines())
    changed = [set(ast.unparse(ast.parse(source)).splitlines()) - before for source in sources]
    assert {line.strip().removeprefix("return ") for lines in changed for line in lines} == MUTANTS
    assert len(sources) == len(MUTANTS)


@pytest.mark.parametrize(
    ("body", "result"), [("pass", "survived"), ("assert 0", "killed"), ("import time; time.sleep(60)", "out of time")]
)
def test_outcome_tells_a_failure_from_a_hang(body: str, result: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "test_here.py").write_text(f"def test():\n    {body}\n")
    assert outcome(tmp_path, ["test_here.py"], 10) == result


def test_mutations_are_of_all_folders_of_the_product() -> None:
    assert {"stacks", "containers", "cli", "components", "ci", "toolchain"} <= set(FOLDERS)
