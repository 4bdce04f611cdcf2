"""Sample mutations of the product, and print those that no test notices: a table in Markdown.

``python -m tests.mutations [--count N] [--seed N] [--jobs N] [FOLDER...]`` works in worktrees of its own, made of the last
commit. For each mutation it runs the tests that import the mutated module, then all that need no engine.
A test that fails kills the mutation. One that does not end in time does not: such a mutation is counted for itself.
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
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

FOLDERS = ("stacks", "containers", "cli", "components", "ci", "maintenance", "scaler", "toolchain", "policies")
TESTS = ("tests/unit", "tests/history", "tests/aws/test_scaler.py")
"""The tests that need no engine and no registry."""
SLOWER = 3
"""How many times longer than without a mutation the tests of one may take."""

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}

EQUIVALENT = (
    *("frozen", "slots", "kw_only", "strict", "timeout", "SECONDS", "TIMEOUT"),
    *("encoding", "errors", "description", "help", "repr"),
)
"""Ends of names whose value is neither mutated nor dropped. Those of a dataclass refuse what mypy refuses, `zip(strict=...)`
what cannot happen, one second more changes nothing, text is UTF-8 here anyway, and prose is read by people."""


class Mutation(NamedTuple):
    """An expression or statement of a module, and what replaces it."""

    file: Path
    node: ast.expr | ast.stmt
    kind: str
    text: str


def dropped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node is without one of its parts: an operand of and/or, an option or element, or the whole statement."""
    match node:
        case ast.BoolOp(values=values):
            for place in range(len(values)):
                left = values[:place] + values[place + 1 :]
                yield "operand", left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
        case ast.Call(keywords=keywords):
            for keyword in keywords:
                if keyword.arg and not keyword.arg.endswith(EQUIVALENT):
                    yield "option", ast.Call(node.func, node.args, [each for each in keywords if each is not keyword])
        case ast.List(elts=elements) | ast.Set(elts=elements) if len(elements) > 1:
            for place in range(len(elements)):
                yield "element", type(node)(elements[:place] + elements[place + 1 :])
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "statement", ast.Pass()


def mutants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node may become: the replaced field, and a copy of the node with it."""
    yield from dropped(node)
    if not isinstance(node, ast.expr):
        return  # a copy of each statement with all of its statements would take minutes
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
        if isinstance(node, ast.expr | ast.stmt) and node not in equivalent:
            for kind, changed in mutants(node):
                yield Mutation(file, node, kind, ast.unparse(ast.fix_missing_locations(changed)))


def replace(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """Return a source with one expression replaced, in parentheses, or one statement."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + (node.end_col_offset or 0)
    new = f"({text})" if isinstance(node, ast.expr) else text
    return (b"".join(lines)[:start] + new.encode() + b"".join(lines)[end:]).decode()


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


def outcome(root: Path, tests: list[str] | tuple[str, ...], seconds: float, *options: str) -> str:
    """Return `killed` if a test fails, `survived` if all pass, and `out of time` if they do not end within some seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *options, *tests]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "out of time"
    return "killed" if done.returncode else "survived"


def tried(root: Path, mutation: Mutation, seconds: float) -> str:
    """Return the outcome of the tests in a worktree with a mutation."""
    file = root / mutation.file
    source = file.read_text(encoding="utf-8")
    file.write_text(replace(source, mutation.node, mutation.text), encoding="utf-8")
    try:
        direct = importing(root, mutation.file)
        first = outcome(root, direct, seconds, "-n0") if direct else "survived"
        return outcome(root, TESTS, seconds, "-n0") if first == "survived" else first
    finally:
        file.write_text(source, encoding="utf-8")


def sampled(root: Path, folders: list[str], count: int, seed: int) -> list[Mutation]:
    """Return a sample of the mutations of some folders."""
    files = [file.relative_to(root) for folder in folders for file in sorted((root / folder).rglob("*.py"))]
    everything = [mutation for file in files for mutation in mutations(root, file)]
    return random.Random(seed).sample(everything, min(count, len(everything)))


def main() -> None:
    """Print each mutation that is not killed as soon as it is known, and then how many had which outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many mutations are tried at once")
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-mutations-") as folder:
        roots = [Path(folder) / str(number) for number in range(options.jobs)]
        free: SimpleQueue[Path] = SimpleQueue()

        def one(mutation: Mutation) -> str:
            root = free.get()
            try:
                return tried(root, mutation, seconds)
            finally:
                free.put(root)

        try:
            for root in roots:
                subprocess.run(["git", "worktree", "add", "--quiet", "--detach", root], check=True)
                free.put(root)
            begun = time.monotonic()
            if outcome(roots[0], TESTS, 7200, "-n0") != "survived":
                sys.exit("a test fails without a mutation")
            seconds = SLOWER * (time.monotonic() - begun)
            sample = sampled(roots[0], options.folders, options.count, options.seed)
            counts = dict.fromkeys(("killed", "survived", "out of time"), 0)
            print("| place | mutation | was | is | outcome |\n| --- | --- | --- | --- | --- |", flush=True)
            with ThreadPoolExecutor(options.jobs) as pool:
                for (file, node, kind, text), result in zip(sample, pool.map(one, sample), strict=True):
                    counts[result] += 1
                    if result != "killed":
                        place, was = f"{file}:{node.lineno}", ast.unparse(node)
                        print(f"| {place} | {kind} | `{was}` | `{text}` | {result} |", flush=True)
            print(", ".join(f"{count} {name}" for name, count in counts.items()), f"of {len(sample)}", flush=True)
        finally:
            for root in roots:
                subprocess.run(["git", "worktree", "remove", "--force", root], check=False)


if __name__ == "__main__":
    main()
