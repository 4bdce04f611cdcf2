"""Mutations of the product: which there are, what a mutated source is, and which tests are run for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.helpers.called import Calls, Chosen, run
from tests.mutations import FOLDERS, called, choices, direct, mutations, replace, tried

SOURCE = """\
WAIT_SECONDS: Final = 7 * 24
def safe(name, pod, online):
    if name and pod.lives and name in online:
        refuse(name, quietly=False, timeout=3)
        return {"a": name, "b": pod}
    pod.name = git("--no-pager", name)
    run(["rm", "--force"])
    return None
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
    "return {'a': name}",
    "return {'b': pod}",
    "pod.name = git(name)",
    "run(['--force'])",
    "run(['rm'])",
}
DROPPED = 4
"""Statements that become `pass`: a call, what is returned, what is assigned, another call."""


def test_mutations_drop_operands_options_and_statements(tmp_path: Path) -> None:
    (tmp_path / "safe.py").write_text(SOURCE)
    sources = [replace(SOURCE, each.node, each.text) for each in mutations(tmp_path, Path("safe.py"))]
    before = set(ast.unparse(ast.parse(SOURCE)).splitlines())
    changed = [set(ast.unparse(ast.parse(source)).splitlines()) - before for source in sources]
    lines = [line.strip() for each in changed for line in each]
    assert set(lines) == MUTANTS
    assert len(lines) == len(sources) == len(MUTANTS) - 1 + DROPPED


def checkout(folder: Path, test: str) -> Path:
    """Write a product of two functions and a module of tests."""
    settings = (
        "markers = slow\npythonpath = .\naddopts = -p no:faulthandler"  # its thread is not in a fork of this process
    )
    (folder / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    (folder / "sums").mkdir()
    (folder / "sums/of_two.py").write_text(
        "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return add(a, a)\n"
    )
    (folder / "tests/unit").mkdir(parents=True)
    (folder / "tests/unit/test_here.py").write_text(f"from sums import of_two\n\n\n{test}")
    return folder


def test_run_tells_a_failure_from_a_hang(tmp_path: Path) -> None:
    bodies = {"survived": "pass", "killed": "assert 0", "out of time": "import time; time.sleep(60)"}
    checkout(tmp_path, "\n\n\n".join(f"def test_{name[:3]}():\n    {body}\n" for name, body in bodies.items()))
    here = "tests/unit/test_here.py"
    for name in bodies:
        seconds = 1.5 if name == "out of time" else 60
        assert run(tmp_path, [here], seconds, Chosen([f"{here}::test_{name[:3]}"])) == name


def test_choices_are_the_calling_tests_and_then_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutations.TESTS", ("tests/unit",))
    add = "def test_add():\n    assert of_two.add(1, 2) == 3\n\n\n"
    twice = "def test_twice():\n    assert of_two.twice(2) == 4\n\n\n"
    checkout(tmp_path, f"{add}{twice}def test_none():\n    pass\n")
    calls, here = Calls(tmp_path, ["sums"]), "tests/unit/test_here.py"
    assert run(tmp_path, [here], 60, calls) == "survived"
    by_line = {each.node.lineno: each for each in mutations(tmp_path, Path("sums/of_two.py"))}
    first, last = by_line[2], by_line[6]
    assert list(choices(tmp_path, first, calls.calls)) == [{f"{here}::test_add", f"{here}::test_twice"}, {here}]
    assert list(choices(tmp_path, last, calls.calls)) == [{f"{here}::test_twice"}, {here}]


def test_file_that_fails_is_named_and_the_others_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.mutations.TESTS", ("tests/unit",))
    checkout(tmp_path, "def test_add():\n    assert of_two.add(1, 2) == 4\n")
    (tmp_path / "tests/unit/test_other.py").write_text("def test_other():\n    pass\n")
    known = Calls(tmp_path, ["sums"])
    assert called(tmp_path, ["sums"], known) == ["tests/unit/test_here.py"]
    assert "assert 3 == 4" in capsys.readouterr().err
    assert [place for place in known.calls if ".py" in place] == [
        "tests/unit/test_other.py",
        "tests/unit/test_other.py::test_other",
    ]
    (tmp_path / "tests/unit/test_here.py").write_text(
        "from sums import of_two\n\n\ndef test_add():\n    of_two.add(1, 2)\n"
    )
    (tmp_path / "tests/unit/test_other.py").write_text("assert 0, 'is known'\n")
    assert called(tmp_path, ["sums"], known) == []
    assert ("sums/of_two.py", 1) in known.calls["tests/unit/test_here.py::test_add"]


def test_direct_tests_are_of_a_module_or_of_its_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutations.TESTS", ("tests/unit",))
    monkeypatch.setattr("tests.mutations.FOLDERS", ("sums",))
    checkout(tmp_path, "def test_twice():\n    assert of_two.twice(2) == 4\n")
    (tmp_path / "tests/unit/test_other.py").write_text("def test_other():\n    assert 0\n")
    (tmp_path / "sums/of_two.py").write_text("from sums import one\n\n\ndef twice(a):\n    return one.add(a, a)\n")
    (tmp_path / "sums/one.py").write_text("def add(a, b):\n    return a + b\n\n\ndef unused(a):\n    return a + 1\n")
    module = Path("sums/one.py")
    assert direct(tmp_path, module) == direct(tmp_path, Path("sums/of_two.py")) == {"tests/unit/test_here.py"}
    sums = [each for each in mutations(tmp_path, module) if each.kind == "arithmetic"]
    assert {each.node.lineno: tried(tmp_path, each, None) for each in sums} == {2: "killed", 6: "survived"}


def test_mutations_are_of_all_folders_of_the_product() -> None:
    assert {"stacks", "containers", "cli", "components", "ci", "toolchain"} <= set(FOLDERS)
