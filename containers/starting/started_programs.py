"""What an image starts: its entry point, its command and its health check, and each environment's Python."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from containers.errors import one_line
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import PLATFORM_MACHINES, ElfMachine
from containers.image.binaries.loader import Loader
from containers.image.binaries.loading import Fault
from containers.image.binaries.musl_loader import MuslLoader
from containers.starting import account, python_environments
from containers.starting.account import ANYBODY_RUNS, READ
from containers.starting.execution import PATH, Execution, Started, runs
from containers.starting.launchers import Words

_SHELL: Final = ("/bin/sh", "-c")
"""What runs the text of a health check (moby/moby 0248325, daemon/health.go, `getShell`)."""
_MOST_OF_TEXT: Final = (32 * 65536 - 1, 32 * 4096 - 1)
"""Bytes of an argument or variable, without its zero byte: 32 pages, of up to 64 KiB, or of 4 KiB
(Linux 6.12, include/uapi/linux/binfmts.h, `MAX_ARG_STRLEN`; fs/exec.c, `copy_strings`)."""
_SMALL_PAGES: Final = {PLATFORM_MACHINES[name] for name in ("amd64", "386", "arm", "s390x", "riscv64")}
"""The machines that have pages of 4 KiB only (Linux 6.12, arch/*/Kconfig, `HAVE_PAGE_SIZE_4KB`)."""
_PROCESSORS: Final = {3, 8, 20, 21, 22, 40, 62, 183, 243, 258}
"""The machines that have an operating system: not GPUs or eBPF."""
_RUN: Final = {"program", "static"}
_FOR_CHOICE: Final = re.compile("aarch64|arm|x86|x64|amd64|i[36]86|ppc|s390|riscv|mips")
"""What the name of a program has that lies beside those for other processors."""


def faults(contents: Contents, machine: ElfMachine, platform: str) -> list[Fault]:
    """Return what keeps an image from being started on a machine, the one of its platform."""
    others = Counter(
        each.machine for each in contents.binaries.values() if each.kind in {"program", "library", "static"}
    )
    foreign = {
        each: count for each, count in others.items() if each.number in _PROCESSORS and each not in runs(machine)
    }
    if foreign and not any(each in others for each in runs(machine)):
        files = ", ".join(f"{count} files are for {each}" for each, count in sorted(foreign.items()))
        return [Fault("platform", "/", f"missing programs for {platform}", files, names=(platform,))]
    user = account.of_image(contents)
    if user.problem:
        return [
            Fault(
                "account",
                "/etc/passwd",
                f"missing {user.name}",
                f"{user.problem}, which the image names",
                names=(user.name,),
            )
        ]
    execution = Execution(contents, machine, user)
    results: list[Fault] = []
    trace = contents.tree.trace(contents.folder)
    if trace.problem == "is no folder" or (trace.entry and trace.entry.kind != "directory" and not trace.problem):
        reason = f"/{trace.path}, where the image starts, is no folder"
        results.append(Fault("start", f"/{trace.path}", "is no WorkingDir", reason, names=(contents.folder,)))
    started: list[Started] = []
    results += _too_long(contents.config, machine)
    for origin, words in _settings(contents.config):
        outcome = execution.start(words)
        started.append(outcome)
        results += _faults(contents, execution, origin, words, outcome)
    results += python_environments.faults(contents, execution, started)
    known = {path for fault in results for path in (fault.file, *fault.names)}
    results += (fault for fault in _foreign(contents, machine) if fault.file not in known)
    return list(dict.fromkeys(results))


def _too_long(config: Any, machine: ElfMachine) -> Iterator[Fault]:
    """Yield the texts that no program can be started with."""
    most = _MOST_OF_TEXT[machine in _SMALL_PAGES]
    settings = {setting: config.get(setting) or [] for setting in ("Entrypoint", "Cmd", "Env")}
    for setting, texts in {**settings, "Healthcheck.Test": _health_check(config)}.items():
        for number, text in enumerate(texts):
            if (size := len(text.encode(errors="surrogatepass"))) > most:
                name = f"Env {one_line(text.partition('=')[0])}" if setting == "Env" else f"{setting}[{number}]"
                reason = f"it has {size:,} bytes, the kernel takes {most:,}; shorten it"
                yield Fault("start", "/", f"starts nothing with {name}", reason)


def _foreign(contents: Contents, machine: ElfMachine) -> Iterator[Fault]:
    """Yield the programs in folders of PATH for another machine; not those that a script may choose from."""
    folders = {contents.tree.trace(folder).path for folder in contents.folders("PATH", PATH)}
    for path, binary in contents.binaries.items():
        name = posixpath.basename(path)
        if posixpath.dirname(path) not in folders or _FOR_CHOICE.search(name) or binary.kind not in _RUN:
            continue
        may_run = binary.machine in runs(machine) or binary.machine.number not in _PROCESSORS or binary.problem
        if not may_run and contents.entries[path].mode & ANYBODY_RUNS:
            reason = f"it is for {binary.machine}, the image for {machine}"
            yield Fault("platform", f"/{path}", "cannot be run", reason, names=(str(binary.machine),))


def _settings(config: Any) -> Iterator[tuple[str, Words]]:
    """Yield the programs that a container starts, each with its setting."""
    entrypoint, command = (list(config.get(name) or []) for name in ("Entrypoint", "Cmd"))
    if words := [*entrypoint, *command]:
        yield "Entrypoint" if entrypoint else "Cmd", Words(words[0], tuple(words[1:]))
    kind, *words = _health_check(config) or [""]
    if kind == "CMD-SHELL":
        shell = config.get("Shell")
        words = [
            *(shell if isinstance(shell, list) and all(isinstance(word, str) for word in shell) else _SHELL),
            *words,
        ]
    if kind in {"CMD", "CMD-SHELL"} and words:
        yield "Healthcheck", Words(words[0], tuple(words[1:]))


def _health_check(config: Any) -> list[str]:
    """Return the words of a health check, its kind first; none if they are malformed."""
    health = config.get("Healthcheck")
    test = health.get("Test") if isinstance(health, dict) else None
    return test if isinstance(test, list) and all(isinstance(word, str) for word in test) else []


def _faults(contents: Contents, execution: Execution, origin: str, words: Words, started: Started) -> Iterator[Fault]:
    if started.refusal:
        reason, about = started.refusal
        first = started.names[0] if started.names else execution.located(words)
        yield Fault("start", first or "/", f"does not start as {origin}", reason, names=(about,))
    elif execution.account.uid:
        for path in dict.fromkeys(started.files):
            if path in contents.binaries:
                yield from _closed_libraries(contents, execution, path)


def _closed_libraries(contents: Contents, execution: Execution, path: str) -> Iterator[Fault]:
    """Yield a fault for each library of a program that the account may not read."""
    binary = contents.binaries[path]
    if binary.kind == "static" or not binary.loaded or binary.problem:
        return
    loader = (MuslLoader if "ld-musl-" in binary.interpreter else Loader)(contents, binary.machine)
    process = loader.process(path)
    # The loader goes on without what it cannot preload (bminor/glibc 2.41, elf/rtld.c, `do_preload`).
    preloaded = [process.by_name.get(name) for name in (*loader.preloaded, *loader.always_preloaded)]
    for loaded in process.objects[1:]:
        refusal = execution.refusal(loaded.place.name, READ)
        if refusal and not any(each is loaded for each in preloaded):
            yield Fault(
                "start", loaded.place.name, "cannot be loaded", refusal.reason, (f"/{path}",), names=(refusal.about,)
            )
