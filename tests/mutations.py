"""Sample mutations of the product, and print the outcome of each: a table in Markdown.

``python -m tests.mutations [--count N] [--seed N] [FOLDER...]`` works in a worktree of its own, made of the last commit.
With ``--direct`` it runs no test beforehand. It tries each mutation by the test files that import its module or name it.
If there are none, it takes those that import a module that imports it. What survives these is to be tried without it.
It first runs all tests that need no engine once, and notes what each calls. For each mutation it runs those tests that call
the mutated function, then their whole files and those that import the module. A test that fails kills the mutation.
One that does not end in time does not: such a mutation is counted for itself. A mutation that only tests with a Docker
engine would notice survives.
"""

from __future__ import annotations

import argparse
import ast
import copy
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.helpers.called import Calls, Chosen, Function, log_of, prepare, run

FOLDERS = ("stacks", "containers", "cli", "components", "ci", "maintenance", "scaler", "toolchain", "policies", "bench")
TESTS = (
    *("tests/unit", "tests/programs", "tests/fuzzing", "tests/history", "tests/attacks"),
    *("tests/aws/test_scaler.py", "tests/aws/test_node_reservations.py"),
)
"""Where the tests are that need no engine and no registry."""
ENGINE = ("tests.engine", "tests.images", "tests.provider", "tests.toolchain")
"""What tests import that need one: they are left out of these."""
SLOWER, START_SECONDS = 5, 60
"""How many times longer than without a mutation the tests of one may take, beside their start, on a busy machine."""
UNKNOWN_SECONDS = 60
"""How long a module's own test files take without a mutation, where it was not measured."""

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}

EQUIVALENT = (
    *("frozen", "slots", "kw_only", "strict", "timeout", "maxsize", "SECONDS", "TIMEOUT"),
    *("encoding", "errors", "description", "help", "metavar", "examples", "repr"),
)
"""Ends of names whose value is neither mutated nor dropped. Those of a dataclass refuse what mypy refuses, `zip(strict=...)`
what cannot happen, a second more or a larger cache changes nothing, text is UTF-8 here anyway, and prose is read by people."""


class Mutation(NamedTuple):
    """An expression or statement of a module, and what replaces it."""

    file: Path
    node: ast.expr | ast.stmt
    kind: str
    text: str


Part = TypeVar("Part")


def without_one(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the parts of something, each time without another one of them."""
    for place in range(len(parts)):
        yield [*parts[:place], *parts[place + 1 :]]


def dropped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node is without one of its parts: an operand of and/or, an option, entry or element; or no statement."""
    match node:
        case ast.BoolOp(values=values):
            for left in without_one(values):
                yield "operand", left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
        case ast.Call(args=arguments, keywords=keywords):
            for keyword in keywords:
                if keyword.arg and not keyword.arg.endswith(EQUIVALENT):
                    yield "option", ast.Call(node.func, arguments, [each for each in keywords if each is not keyword])
            for word in arguments:
                if isinstance(word, ast.Constant) and str(word.value).startswith("-"):
                    yield "option", ast.Call(node.func, [each for each in arguments if each is not word], keywords)
        case ast.Dict(keys=[_, _, *_] as keys, values=values):
            for pairs in without_one([*zip(keys, values, strict=True)]):
                yield "entry", ast.Dict(*map(list, zip(*pairs, strict=True)))
        case ast.List(elts=[_, _, *_] as elements) | ast.Set(elts=[_, _, *_] as elements):
            for rest in without_one(elements):
                yield "element", type(node)(rest)
        case ast.stmt() if whole(node):
            yield "statement", ast.Pass()


def whole(node: ast.stmt) -> bool:
    """Tell whether a statement may be dropped: without it a module is compiled, and no name is missing for sure."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Return(value=ast.expr()):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return isinstance(node, ast.Raise | ast.AugAssign | ast.Delete | ast.Continue | ast.Break)


def mutants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node may become: the replaced field, and a copy of the node with it."""
    yield from dropped(node)
    if not isinstance(node, ast.expr):
        return  # a copy of each statement with all of its statements would take minutes
    changed = copy.copy(node)
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
    """Yield all mutations of a module but those that change nothing: see EQUIVALENT, a function's annotations, its last `return None`."""
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    equivalent: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.keyword(arg=str(name), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if name.endswith(EQUIVALENT):
                    equivalent.update(ast.walk(value))
            case ast.FunctionDef(returns=returns, body=[*_, end]):
                if isinstance(end, ast.Return) and ast.unparse(end) == "return None":
                    equivalent.add(end)
                inner = [part.annotation for part in ast.walk(node) if isinstance(part, ast.arg | ast.AnnAssign)]
                equivalent.update(part for top in (*inner, returns) if top for part in ast.walk(top))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt) and node not in equivalent:
            for kind, changed in mutants(node):
                yield Mutation(file, node, kind, ast.unparse(changed))


def replace(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """Return a source with one expression replaced, in parentheses, or one statement."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + (node.end_col_offset or 0)
    new = f"({text})" if isinstance(node, ast.expr) else text
    return (b"".join(lines)[:start] + new.encode() + b"".join(lines)[end:]).decode()


@cache
def imported(file: Path) -> set[str]:
    """Return the dotted names that a module imports; `from a import b` gives `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def importing(root: Path, file: Path) -> set[str]:
    """Return the test files that import a module, or name its file."""
    module, names = dotted(file), (f"/{file.name}", f'"{file.name}"')
    return {
        str(test.relative_to(root))
        for test in test_files(root)
        if module in imported(test) or any(name in test.read_text(encoding="utf-8") for name in names)
    }


def dotted(file: Path) -> str:
    """Return the name by which a module is imported."""
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def test_files(root: Path) -> list[Path]:
    """Return the files of the tests."""
    places = [root / place for place in TESTS]
    tests = [test for place in places for test in ([place] if place.suffix else sorted(place.rglob("test_*.py")))]
    return [test for test in tests if not any(name.startswith(ENGINE) for name in imported(test))]


def function(root: Path, mutation: Mutation) -> Function | None:
    """Return the function that a mutation is in, or None for what runs as the module is imported."""
    inside: list[int] = []
    for node in ast.walk(ast.parse((root / mutation.file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[0].lineno, node.end_lineno or 0
            if body[0] <= mutation.node.lineno <= body[1]:
                inside.append(min(each.lineno for each in (node, *node.decorator_list)))
    return (str(mutation.file), max(inside)) if inside else None


def choices(root: Path, mutation: Mutation, calls: dict[str, set[Function]]) -> Iterator[set[str]]:
    """Yield the tests that may kill a mutation: those that call its function, then the whole files that do or import it.

    What runs as the module is imported is noticed by those that import it, or call anything of it.
    """
    here, name = function(root, mutation), str(mutation.file)
    direct = importing(root, mutation.file)
    if here:
        calling = {place for place, functions in calls.items() if here in functions}
        whole = {place for place in calling if "::" not in place}
        first = {place for place in calling if "::" in place and place.partition("::")[0] not in whole} | whole
        second = direct | {place.partition("::")[0] for place in calling}
    else:
        users = {str(file) for file in product(root) if dotted(mutation.file) in imported(root / file)} | {name}
        first = direct | {place for place, functions in calls.items() if any(each[0] == name for each in functions)}
        second = {p.partition("::")[0] for p, functions in calls.items() if any(each[0] in users for each in functions)}
    yield first
    yield second - first


def direct(root: Path, file: Path) -> set[str]:
    """Return the test files that import a module, or else those that import one of the modules that import it."""
    users = (each for each in product(root) if dotted(file) in imported(root / each))
    return importing(root, file) or {test for each in users for test in importing(root, each)}


def product(root: Path) -> list[Path]:
    """Return the modules of the product."""
    return [file.relative_to(root) for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]


def tried(root: Path, mutation: Mutation, calls: Calls | None) -> str:
    """Return the outcome of the tests in a worktree with a mutation, without calls by those of :func:`direct` alone."""
    file = root / mutation.file
    source = file.read_text(encoding="utf-8")
    near = direct(root, mutation.file)
    stages = choices(root, mutation, calls.calls) if calls else [near]

    def write(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        Path(cache_from_source(str(file))).unlink(missing_ok=True)  # it may be of the same second, and as long

    write(replace(source, mutation.node, mutation.text))
    try:
        for tests in stages:
            took = sum(calls.seconds.get(test, 0) for test in tests) if calls else UNKNOWN_SECONDS
            files = sorted({test.partition("::")[0] for test in tests}, key=lambda each: each not in near)
            result = run(root, files, SLOWER * took + START_SECONDS, Chosen(tests)) if files else "survived"
            if result != "survived":
                return result
        return "survived"
    finally:
        write(source)


def called(root: Path, folders: Sequence[str], known: Calls) -> list[str]:
    """Add what each test of a checkout calls, of the files that are not known yet; return those of which a test fails.

    Each file is run in a process of its own: what one caches none else needs.
    """
    failing = []
    for place in [str(file.relative_to(root)) for file in test_files(root)]:
        calls = Calls(root, folders)
        if place in known.calls:
            continue
        if run(root, [place], 7200, calls) == "survived":
            known.calls.update(calls.calls)
            known.seconds.update(calls.seconds)
        else:
            failing.append(place)
            print(f"{place} fails without a mutation:\n{log_of(root).read_text(errors='replace')}", file=sys.stderr)
    return failing


def sampled(root: Path, folders: list[str], count: int, seed: int) -> list[Mutation]:
    """Return mutations of some folders, each of another line: all lines that have any are drawn alike."""
    lines: dict[tuple[Path, int], list[Mutation]] = {}
    for file in (file for file in product(root) if file.parts[0] in folders):
        for mutation in mutations(root, file):
            lines.setdefault((file, mutation.node.lineno), []).append(mutation)
    chance = random.Random(seed)
    return [chance.choice(lines[line]) for line in chance.sample(sorted(lines), min(count, len(lines)))]


def main() -> None:
    """Print the outcome of each mutation as soon as it is known, and then how many had which."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="how many of the sample not to try: those tried before")
    parser.add_argument(
        "--calls",
        type=Path,
        help="where it is noted what each test calls: the next time what is not there yet is added",
    )
    parser.add_argument("--direct", action="store_true", help="try only tests that import the module, and map no calls")
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    options = parser.parse_args()
    prepare()
    with tempfile.TemporaryDirectory(prefix="slipway-mutations-") as folder:
        root = Path(folder, "checkout")
        try:
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", root], check=True)
            calls = None if options.direct else Calls(root, FOLDERS)
            if calls and options.calls and options.calls.exists():
                calls.calls, calls.seconds = pickle.loads(options.calls.read_bytes())
            failing = called(root, FOLDERS, calls) if calls else []
            if calls and options.calls:
                options.calls.write_bytes(pickle.dumps((calls.calls, calls.seconds)))
            if failing:  # each would kill every mutation
                sys.exit(f"{', '.join(failing)}: mend what fails; with --calls the next run maps these files alone")
            counts = dict.fromkeys(("killed", "survived", "out of time"), 0)
            print("| place | mutation | was | is | outcome |\n| --- | --- | --- | --- | --- |", flush=True)
            for mutation in sampled(root, options.folders, options.count, options.seed)[options.skip :]:
                counts[result := tried(root, mutation, calls)] += 1
                place, was = f"{mutation.file}:{mutation.node.lineno}", ast.unparse(mutation.node)
                print(f"| {place} | {mutation.kind} | `{was}` | `{mutation.text}` | {result} |", flush=True)
            print(
                ", ".join(f"{count} {name}" for name, count in counts.items()), "of", sum(counts.values()), flush=True
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", root], check=False)


if __name__ == "__main__":
    main()
