"""The measures of the layout: imports run downward, folders stay small, names are unique, `stacks` is pure."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from maintenance.generated.architecture_picture import PARTS
from maintenance.generated.code_reference import rooms
from stacks.config.model import Model
from stacks.config.stack_file import ROOT

FOLDERS: Mapping[str, Collection[str]] = {
    "containers": (),
    "scaler": (),
    "stacks": ("containers",),
    "cli": ("containers", "scaler", "stacks"),
    "maintenance": ("cli", "containers", "stacks"),
    "components": ("containers", "scaler", "stacks"),
    "toolchain": ("cli", "containers", "stacks"),
    "ci": ("cli", "containers", "stacks", "toolchain"),
    "bench": ("cli", "containers", "stacks", "toolchain"),
    "policies": ("containers",),  # its reader of Dockerfiles, which needs Python alone
}
"""The folders of product code, and which other folders each may import."""

STACKS = (
    "places",
    *(
        "versions",
        "tags",
        "spec",
        "differences",
        "config",
        "jobs",
        "flavors",
    ),
    *("lock", "platforms", "graph", "checks", "identity", "plan", "placement", "jobs.slurm"),
)
"""Modules and packages of `stacks`, the lowest first. What is not named stands above them all."""

PROCESSES = {"stacks.identity.git", "stacks.identity.older_trees.own_rows"}
"""The modules of `stacks` that may start processes: git, and this program with an older commit's rows of tables."""

OUTSIDE = {"asyncio", "ftplib", "http", "multiprocessing", "smtplib", "socket", "socketserver", "ssl", "subprocess"}
OUTSIDE |= {"urllib.request", "urllib.error", "webbrowser", "xmlrpc"}
"""Modules of the standard library that reach the network or start a process."""

THIRD_PARTY = {"packaging", "pydantic", "pydantic_core", "yaml"}
"""Packages that `stacks` may import: they compute, and reach neither network nor processes."""

MOST_MODULES = 12

MOST_BRANCHES = 20
"""The greatest cyclomatic complexity of a function, with those inside it."""

OTHER_NAMES = {"containers.child_environment", "containers.errors"}
"""Modules that only give what a module of the library of that name has."""


@cache
def modules() -> Mapping[str, Path]:
    """Return the files of the product's modules by dotted name; a package's is its `__init__`. A template is a user's."""
    files = (
        file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py")) if "template" not in file.parts
    )
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def product() -> Iterator[Path]:
    """Yield the files of the product: its modules, the programs that images get, and the two at the top."""
    yield from modules().values()
    yield from sorted((ROOT / "dockerfiles").rglob("*.py"))
    yield from (ROOT / "__main__.py", ROOT / "slipway.py")


@cache
def tree(file: Path) -> ast.Module:
    """Return the syntax of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports(file: Path) -> list[str]:
    """Return the dotted names that a file imports, in functions too; of `from a import b` it is `a.b`."""
    return list(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def dependencies() -> Mapping[str, Collection[str]]:
    """Return the product's modules that each imports; entry points, which may import anything, are left out."""
    return {
        name: {target for imported in imports(file) if (target := _module(imported))}
        for name, file in modules().items()
        if file.name != "__main__.py"
    }


def _module(imported: str) -> str | None:
    """Return the module that an imported name is, or is in."""
    return next((name for name in (imported, imported.rpartition(".")[0]) if name in modules()), None)


def floor(module: str) -> int:
    """Return how high a module of `stacks` stands."""
    _, package, *rest = module.split(".")
    names = [name for name in (".".join((package, *rest)), package) if name in STACKS]
    return STACKS.index(names[0]) if names else len(STACKS)


def test_picture_of_the_code_has_every_folder() -> None:
    assert PARTS.keys() == FOLDERS.keys()


def test_folder_of_modules_says_what_it_holds() -> None:
    silent = [room for room, meaning in rooms().items() if not meaning]
    assert not silent, f"write what they hold in the first line of their __init__.py: {silent}"


def test_import_of_other_folder_runs_downward() -> None:
    upward = [
        f"{name} -> {target}"
        for name, targets in dependencies().items()
        for target in targets
        if target.partition(".")[0] not in {name.partition(".")[0], *FOLDERS[name.partition(".")[0]]}
    ]
    assert sorted(upward) == []


def test_import_within_stacks_runs_downward() -> None:
    upward = [
        f"{name} -> {target}"
        for name, targets in dependencies().items()
        for target in targets
        if name.startswith("stacks.") and target.startswith("stacks.") and floor(name) < floor(target)
    ]
    assert sorted(upward) == []


def test_imports_of_modules_have_no_cycle() -> None:
    try:
        TopologicalSorter(dependencies()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_product_imports_no_test() -> None:
    importing = [
        name for name, file in modules().items() if any(f"{other}.".startswith("tests.") for other in imports(file))
    ]
    assert importing == []


def test_folder_of_modules_holds_a_dozen_at_most() -> None:
    counts = Counter(
        file.parent.relative_to(ROOT).as_posix()
        for file in modules().values()
        if file.name not in {"__init__.py", "__main__.py"}
    )
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def complexity(function: ast.AST) -> int:
    """Return 1 and one more for each branch, loop, handler, condition, and operand of and/or, as radon counts."""
    counted = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
    total = 1
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        else:
            total += isinstance(node, counted)
    return total


def test_function_of_product_has_20_branches_at_most() -> None:
    counts = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": complexity(node)
        for file in product()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: count for function, count in counts.items() if count > MOST_BRANCHES} == {}


def test_modules_of_product_have_unique_names() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, file in modules().items():
        if file.name not in {"__init__.py", "__main__.py"} and name not in OTHER_NAMES:
            places[file.stem].append(name)
    assert {stem: names for stem, names in places.items() if len(names) > 1} == {}


def test_public_classes_of_product_have_unique_names() -> None:
    """A flavor's `Config` aside: every flavor has one."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in product():
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != "Config":
                places[node.name].append(file.relative_to(ROOT).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_models_of_configuration_end_in_config() -> None:
    for name in modules():
        if name.startswith(("stacks.config.", "stacks.flavors.")):
            importlib.import_module(name)
    names = [
        f"{model.__module__}.{model.__name__}"
        for model in _subclasses(Model)
        if model.__module__.startswith("stacks.") and not model.__name__.startswith("_")
    ]
    assert len(names) > 50
    assert [name for name in sorted(names) if not name.endswith("Config")] == []


def _subclasses(base: type[Model]) -> Iterator[type[Model]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def test_stacks_imports_reach_no_network_or_process() -> None:
    reached = [
        f"{name} -> {imported}"
        for name, file in modules().items()
        if name.partition(".")[0] == "stacks" and file.name != "__main__.py"
        for imported in imports(file)
        if any(f"{imported}.".startswith(f"{module}.") for module in OUTSIDE)
        and not (imported == "subprocess" and name in PROCESSES)
    ]
    assert reached == []


def test_library_imports_of_stacks_reach_no_network() -> None:
    pending = [target for name, targets in dependencies().items() if name.startswith("stacks.") for target in targets]
    reachable: set[str] = set()
    while pending:
        if (module := pending.pop()).startswith("containers.") and module not in reachable:
            reachable.add(module)
            pending += dependencies()[module]
    reached = {
        module: imported
        for module in reachable
        for imported in imports(modules()[module])
        if any(f"{imported}.".startswith(f"{outside}.") for outside in OUTSIDE)
    }
    assert reached == {}


def test_stacks_imports_only_packages_that_compute() -> None:
    imported = {
        imported.partition(".")[0]
        for name, file in modules().items()
        if name.partition(".")[0] == "stacks" and file.name != "__main__.py"
        for imported in imports(file)
    }
    assert imported - {"containers", "stacks", *sys.stdlib_module_names} == THIRD_PARTY


def test_names_of_tests_have_60_characters_at_most() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    assert [name for name in sorted(names) if len(name) > 60] == []
