"""Sample mutations of the product, and print those that no test notices: a table in Markdown.

``python -m tests.mutations [--count N] [--seed N] [FOLDER...]`` works in a worktree of its own, made of the last commit. For each
mutation it runs the tests in `tests/unit` and `tests/history` that import the mutated module, themselves or through others.
A mutation that only tests with a Docker engine would notice is printed too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("stacks", "components", "ci", "toolchain/docker_provider")
TESTS = ("tests/unit", "tests/history")
SECONDS = 600

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}


def mutants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node may become: the replaced field, and a copy of the node with it."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITES:
            changed.ops = [OPPOSITES[type(op)]()]  # type: ignore[list-item]
            yield "comparison", changed
        case ast.BoolOp() if type(changed.op) in OPPOSITES:
            changed.op = OPPOSITES[type(changed.op)]()  # type: ignore[assignment]
            yield "and/or", changed
        case ast.BinOp() if type(changed.op) in OPPOSITES and not isinstance(changed.left, ast.Constant):
            changed.op = OPPOSITES[type(changed.op)]()  # type: ignore[assignment]
            yield "arithmetic", changed
        case ast.UnaryOp(op=ast.Not()):
            yield "not", changed.operand
        case ast.Constant(value=bool() as value):
            changed.value = not value
            yield "constant", changed
        case ast.Constant(value=int() as value):
            changed.value = value + 1
            yield "constant", changed
        case ast.Name(id=name) if name in NAMES:
            changed.id = NAMES[name]
            yield "name", changed


def places(file: Path) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield the expressions of a module that can be mutated, what is mutated, and the mutated source."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            for kind, changed in mutants(node):
                yield node, kind, ast.unparse(ast.fix_missing_locations(changed))


def replace(source: str, node: ast.expr, text: str) -> str:
    """Return a source with one expression replaced, in parentheses."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + (node.end_col_offset or 0)
    return (b"".join(lines)[:start] + f"({text})".encode() + b"".join(lines)[end:]).decode()


def imported(file: Path) -> set[str]:
    """Return the dotted names that a module imports; `from a import b` gives `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def reaching(root: Path, module: str) -> list[str]:
    """Return the test files that import a module, directly if any does, else through one other module."""
    tests = [file for folder in TESTS for file in (root / folder).rglob("test_*.py")]
    direct = [str(file) for file in tests if module in imported(file)]
    if direct:
        return direct
    product = [
        file
        for folder in ("stacks", "oci", "cli", "components", "ci", "toolchain")
        for file in (root / folder).rglob("*.py")
    ]
    users = {
        ".".join(f.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for f in product
        if module in imported(f)
    }
    return [str(file) for file in tests if users & imported(file)] or [str(root / folder) for folder in TESTS]


def killed(root: Path, tests: list[str]) -> bool:
    """Say whether a test fails, or does not end in time."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Print each survivor as soon as it is known, and then how many mutations were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-mutations-") as folder:
        root = Path(folder) / "checkout"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", root], check=True)
        try:
            files = [file for name in options.folders for file in sorted((root / name).rglob("*.py"))]
            all_places = [(file, *place) for file in files for place in places(file)]
            sample = random.Random(options.seed).sample(all_places, min(options.count, len(all_places)))
            survivors = 0
            print("| place | mutation | was | is |\n| --- | --- | --- | --- |", flush=True)
            for file, node, kind, text in sample:
                source = file.read_text(encoding="utf-8")
                name = file.relative_to(root)
                module = ".".join(name.with_suffix("").parts).removesuffix(".__init__")
                file.write_text(replace(source, node, text), encoding="utf-8")
                if not killed(root, reaching(root, module)):
                    survivors += 1
                    print(f"| {name}:{node.lineno} | {kind} | `{ast.unparse(node)}` | `{text}` |", flush=True)
                file.write_text(source, encoding="utf-8")
            print(f"{len(sample) - survivors} of {len(sample)} killed", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", root], check=True)


if __name__ == "__main__":
    main()
