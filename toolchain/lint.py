"""`make lint`: Python, Dockerfiles, shell scripts and workflows, found by what they are and not by a list."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from containers.child_environment import LOCAL_SECONDS, child_environment
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.steps import output, say, step
from toolchain.parts.part import Part, recall, remember
from toolchain.release.own_repository import TEMPLATE

WORKFLOWS = Path(".github/workflows")
"""Where GitHub looks for workflows."""


def _files(checkout: Checkout) -> list[Path]:
    """Return the files that git tracks or would track."""
    listed = output(["git", "-C", checkout.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    return [file for name in listed.split("\0") if name and (file := checkout.root / name).is_file()]


def _is_shell(file: Path) -> bool:
    with file.open("rb") as opened:
        first = opened.readline(80)
    return first.startswith(b"#!") and first.split()[-1].rpartition(b"/")[2] in {b"sh", b"bash"}


def _actionlint(checkout: Checkout) -> str:
    """Return the path of actionlint, built from its Go module, as no package index has it.

    Raises ToolchainError if the modules of `go/actionlint/go.mod` are not available.
    """
    name, module = "actionlint", "github.com/rhysd/actionlint"
    version, target = golang.required(name, module), checkout.bin / name
    part = recall(checkout, name, version)
    if not (part and target.exists()):
        with step("Building actionlint from its Go module"):
            golang.build(checkout, name, f"{module}/cmd/actionlint", target)
        part = remember(checkout, Part(name, str(target), version), version)
    return part.used


def checks(checkout: Checkout) -> Iterator[list[str | Path]]:
    """Yield the command lines to run, each a program of the Python environment or a path."""
    files = _files(checkout)
    yield ["ruff", "format", "--check", "--quiet", "."]
    yield ["ruff", "check", "--quiet", "."]
    yield ["mypy"]
    if dockerfiles := [file for file in files if file.name == "Dockerfile"]:
        yield ["hadolint", *dockerfiles]
    if scripts := [file for file in files if file.suffix == ".sh" or _is_shell(file)]:
        yield ["shellcheck", *scripts]
    folders = (checkout.root / WORKFLOWS, TEMPLATE / WORKFLOWS)
    if workflows := [file for file in files if file.parent in folders and file.suffix in {".yaml", ".yml"}]:
        yield ["zizmor", "--offline", "--quiet", "--persona", "auditor", *workflows]
        shellcheck = checkout.venv / "bin" / "shellcheck"
        with golang.caches(checkout):
            program = _actionlint(checkout)
        yield [program, "-shellcheck", shellcheck, "-pyflakes=", *workflows]


def lint(checkout: Checkout) -> int:
    """Run every check, also after one has found something. Returns how many did."""
    failed = 0
    for program, *arguments in checks(checkout):
        done = subprocess.run(
            [checkout.venv / "bin" / str(program), *arguments],
            cwd=checkout.root,
            check=False,
            env=child_environment(program),
            timeout=LOCAL_SECONDS,
        )
        say(
            f"lint: {Path(program).name} {arguments[0] if program == 'ruff' else ''}".rstrip()
            + (": failed" if done.returncode else ": clean")
        )
        failed += bool(done.returncode)
    return failed
