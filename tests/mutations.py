"""Sample mutations of the product, and print those that no test notices: a table in Markdown.

``python -m tests.mutations [--count N] [--seed N] [--jobs N] [FOLDER...]`` works in worktrees of its own, made of the last
commit. For each mutation it runs the tests that import the mutated module, then all that need no engine.
A test that fails or does not end kills the mutation. A mutation that only tests with a Docker engine would notice is printed too.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

FOLDERS = ("stacks", "components", "ci", "toolchain/docker_provider")
TESTS = ("tests/unit", "tests/history", "tests/aws/test_scaler.py")
"""The tests that need no engine and no registry."""
SECONDS = 300
"""The longest that the tests of one mutation may take; all of them take about 100."""

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}

EQUIVALENT = ("frozen", "slots", "kw_only", "strict", "timeout", "SECONDS", "TIMEOUT")
"""Ends of names whose value is not mutated. Those of a dataclass refuse what mypy refuses, `zip(strict=...)` what cannot happen,
and one second more changes nothing."""


class Mutation(NamedTuple):
    """An expression of a module, and what replaces it."""

    file: Path
    node: ast.expr
    kind: str
    text: str


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


def mutations(root: Path, file: Path) -> Iterator[Mutation]:
    """Yield all mutations of a module but those that change nothing: see EQUIVALENT, and a function's annotations."""
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    equivalent: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=str(name), value=value) | ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name.endswith(EQUIVALENT):
                    equivalent.add(value)
            case ast.FunctionDef(returns=returns):
                inner = [part.annotation for part in ast.walk(node) if isinstance(part, ast.arg | ast.AnnAssign)]
                equivalent.update(part for top in (*inner, returns) if top for part in ast.walk(top))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node not in equivalent:
            for kind, changed in mutants(node):
                yield Mutation(file, node, kind, ast.unparse(ast.fix_missing_locations(changed)))


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


def importing(root: Path, file: Path) -> list[str]:
    """Return the test files that import a module."""
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    tests = [test for place in TESTS for test in (root / place, *sorted((root / place).rglob("test_*.py")))]
    return [str(test.relative_to(root)) for test in tests if test.is_file() and module in imported(test)]


def passes(root: Path, tests: list[str] | tuple[str, ...], *options: str) -> bool:
    """Say whether all tests pass, and end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *options, *tests]
    try:
        return not subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return False


def survives(root: Path, mutation: Mutation) -> bool:
    """Say whether all tests pass in a worktree with a mutation."""
    file = root / mutation.file
    source = file.read_text(encoding="utf-8")
    file.write_text(replace(source, mutation.node, mutation.text), encoding="utf-8")
    try:
        direct = importing(root, mutation.file)
        return (not direct or passes(root, direct, "-n0")) and passes(root, TESTS, "-n0")
    finally:
        file.write_text(source, encoding="utf-8")


def sampled(root: Path, folders: list[str], count: int, seed: int) -> list[Mutation]:
    """Return a sample of the mutations of some folders."""
    files = [file.relative_to(root) for folder in folders for file in sorted((root / folder).rglob("*.py"))]
    everything = [mutation for file in files for mutation in mutations(root, file)]
    return random.Random(seed).sample(everything, min(count, len(everything)))


def main() -> None:
    """Print each survivor as soon as it is known, and then how many mutations were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many mutations are tried at once")
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-mutations-") as folder:
        roots = [Path(folder) / str(number) for number in range(options.jobs)]
        free: SimpleQueue[Path] = SimpleQueue()

        def survivor(mutation: Mutation) -> bool:
            root = free.get()
            try:
                return survives(root, mutation)
            finally:
                free.put(root)

        try:
            for root in roots:
                subprocess.run(["git", "worktree", "add", "--quiet", "--detach", root], check=True)
                free.put(root)
            if not passes(roots[0], TESTS, f"-n{options.jobs}"):
                sys.exit("a test fails without a mutation")
            sample = sampled(roots[0], options.folders, options.count, options.seed)
            survivors = 0
            print("| place | mutation | was | is |\n| --- | --- | --- | --- |", flush=True)
            with ThreadPoolExecutor(options.jobs) as pool:
                for (file, node, kind, text), survived in zip(sample, pool.map(survivor, sample), strict=True):
                    if survived:
                        survivors += 1
                        print(f"| {file}:{node.lineno} | {kind} | `{ast.unparse(node)}` | `{text}` |", flush=True)
            print(f"{len(sample) - survivors} of {len(sample)} killed", flush=True)
        finally:
            for root in roots:
                subprocess.run(["git", "worktree", "remove", "--force", root], check=False)


if __name__ == "__main__":
    main()
