"""How a container starts a file: the program itself, or the one in its ``#!``, and the program that this one starts.

Sources: Linux 6.12, fs/exec.c (`do_open_execat`, `exec_binprm`), fs/binfmt_script.c and fs/binfmt_elf.c; runc looks
names up as Go's os/exec does (opencontainers/runc v1.3.0, libcontainer/standard_init_linux.go:217, `LookPath`).
Compared with the kernel in tests/images/test_started.py.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from containers.image.binaries.contents import Contents, Script
from containers.image.binaries.elf_file import AARCH64, I386, X86_64, ElfMachine
from containers.image.layers.file_tree import Trace
from containers.starting import account, file_readers, launchers
from containers.starting.account import READ, RUN, Account
from containers.starting.launchers import Words
from containers.starting.python_modules import OF_RUNTIME, PythonModules
from containers.starting.refusals import Refusal

_RUNS: Final[Mapping[ElfMachine, frozenset[ElfMachine]]] = {
    X86_64: frozenset({X86_64, I386}),
    AARCH64: frozenset({AARCH64}),
}
"""What the kernel of a machine runs. The processors of Grace and Graviton have no 32-bit mode."""
_OF_HOST: Final = {
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    *("nv-fabricmanager", "nvidia-imex", "nvidia-imex-ctl"),
}
"""Programs that come with the host's driver (NVIDIA/libnvidia-container 00b4b47, src/nvc_info.c:62, `utility_bins` and
`compute_bins`; NVIDIA/nvidia-container-toolkit, package nvcdi, `NewDriverBinariesDiscoverer`)."""
_MOST_REWRITES: Final = 5
"""Times that ``#!`` may lead from one file to the next."""
_MOST_LAUNCHES: Final = 8
"""Programs that are followed, each of which starts the next."""
_MOST_STARTS: Final = 256
"""Programs of scripts that are started; more are taken to start."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of a container whose image sets none (moby/moby 9f3e5ee, oci/defaults.go, `defaultUnixPathEnv`)."""


class _NotStarted(Exception):
    def __init__(self, reason: str, about: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, about)


@dataclass(frozen=True)
class Started:
    """What became of a program: the ``files`` that run, by path after following links, and why it does not start.

    ``names`` are the same files as they were named.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    refusal: Refusal | None


def runs(machine: ElfMachine) -> frozenset[ElfMachine]:
    """Return the machines whose programs the kernel of a machine runs."""
    return _RUNS.get(machine, frozenset({machine}))


class Execution:
    """Starts programs of an image as an account, on a machine."""

    def __init__(self, contents: Contents, machine: ElfMachine, user: Account) -> None:
        self._contents, self._machine, self.account = contents, machine, user
        self._modules = PythonModules(contents)
        self._starts = 0

    def start(self, words: Words) -> Started:
        """Start a program: a path, or a name on PATH."""
        files: list[str] = []
        names: list[str] = []
        self._starts = 0
        refusal = self._start(words, files, names, _MOST_LAUNCHES)
        return Started(tuple(files), tuple(names), refusal)

    def _start(self, words: Words, files: list[str], names: list[str], most: int) -> Refusal | None:
        """Start a program and what it starts, at most so many in a row; return why one of them does not start."""
        try:
            invoked = self._run(words, files, names)
            if not words.loose:
                self._check_arguments(files, names, invoked, words)
            launcher = words if posixpath.basename(words.program) in launchers.SCRIPTS else invoked
            for launched in launchers.launched(launcher, self._contents.environment) if most > 1 else ():
                if refusal := self._start_next(words, launched, files, names, most - 1):
                    return refusal
            if most > 1:
                return self._start_chosen(words, invoked, files, names, most - 1)
        except _NotStarted as error:
            return None if self._comes_later(words, error.refusal.about) else error.refusal
        return None

    def _start_chosen(
        self, words: Words, invoked: Words, files: list[str], names: list[str], most: int
    ) -> Refusal | None:
        """Start the programs of a script; return why it starts none."""
        tried: list[tuple[list[str], list[str]]] = []

        def start(each: Words) -> Refusal | None:
            self._starts += 1
            if self._starts > _MOST_STARTS:
                return None
            own = ([*files], [*names])
            if each.program:
                tried.append(own)
            try:
                return self._start_next(words, each, *own, most)
            except _NotStarted as error:
                return error.refusal

        refusal = launchers.followed(
            invoked._replace(cut=words.cut),
            self._contents.environment,
            partial(self._script, words.folder),
            self.account.uid,
            lambda path: self.exists(self._absolute(path, words.folder)),
            start,
        )
        if len(tried) == 1:
            files[:], names[:] = tried[0]
        return refusal

    def _start_next(
        self, words: Words, launched: Words, files: list[str], names: list[str], most: int
    ) -> Refusal | None:
        """Start what a program starts."""
        launched = launched._replace(cut=words.cut or launched.cut)
        if launched.user and not words.loose:
            self._check_privilege(files[-1])
        if launched.root:
            return None if words.loose else self._start_in_root(words.folder, launched, most)
        folder, loose = posixpath.join(words.folder, launched.folder), words.loose or launched.loose
        following = launched._replace(folder=folder, loose=loose)
        execution = self._as(launched.user, loose=loose) if launched.user else self
        certain = not loose or following.program.startswith("/") or self._is_there(following)
        if not execution._enters(following) or not certain or not following.program:  # noqa: SLF001
            return None
        return execution._start(following, files, names, most)  # noqa: SLF001

    def _check_privilege(self, launcher: str) -> None:
        """Check that a program may change its user: for all but the superuser, its file gives it the right."""
        entry = self._contents.entries.get(launcher)
        if self.account.uid and entry and not entry.mode & stat.S_ISUID and not entry.capabilities:
            reason = f"user {self.account.name} may not change the user with /{launcher}"
            raise _NotStarted(f"{reason}, which has neither the setuid bit nor capabilities", f"/{launcher}")

    def _start_in_root(self, folder: str, launched: Words, most: int) -> Refusal | None:
        """Start a program in another root, where all is as in an image of its own; only the superuser may do so."""
        trace = self._contents.tree.trace(self._absolute(launched.root, folder))
        root = f"/{trace.path}"
        if trace.problem or self._modules.is_mounted(root) or f"{root}/".startswith(OF_RUNTIME) or self.account.uid:
            return None
        contents = self._contents.below(trace.path) if trace.path else self._contents
        execution = Execution(contents, self._machine, self.account)
        refusal = execution._start(launched._replace(root=""), [], [], most)
        return refusal and Refusal(f"in the root {root}: {refusal.reason}", f"{root}/{refusal.about.lstrip('/')}")

    def _script(self, folder: str, script: str) -> Script | None:
        return self._contents.scripts.get(self._contents.tree.trace(self._absolute(script, folder)).path)

    def _comes_later(self, words: Words, about: str) -> bool:
        """Return whether a container may have what keeps a program from its start: from the host, or a volume."""
        if posixpath.basename(words.program) in _OF_HOST or about.startswith(OF_RUNTIME):
            return True
        if not about.startswith("/"):
            folders = self._contents.folders("PATH")
            return "/" not in words.program and any(map(self._modules.is_volume, folders))
        folder = posixpath.dirname(about)
        is_relative = "/" in words.program and not words.program.startswith(("/", "~", "$", " "))
        is_there = self._contents.tree.find(folder) is not None or is_relative
        return self._modules.is_volume(about) or (is_there and self._modules.is_mounted(folder))

    def refusal(self, path: str, right: int) -> Refusal | None:
        """Return why the account has no right to a path; None if it has."""
        trace = self._contents.tree.trace(path)
        who = f"user {self.account.name}"
        if closed := next((folder for folder, entry in trace.folders if not self.account.may(RUN, entry)), None):
            return Refusal(f"{who} may not enter /{closed}", f"/{closed}")
        if trace.problem:
            led = "" if f"/{trace.path}" == _normal(path) else f", where {path} leads,"
            return Refusal(f"/{trace.path}{led} {trace.problem}", f"/{trace.path}")
        if not self.account.may(right, trace.entry):
            mode = trace.entry.mode if trace.entry else 0
            verb = "read" if right == READ else "run"
            return Refusal(f"{who} may not {verb} /{trace.path}, whose mode is {mode:04o}", f"/{trace.path}")
        return None

    def located(self, words: Words) -> str:
        """Return the path that a program is started by; empty if no folder of PATH has it."""
        program = words.program
        if "/" in program:
            return self._absolute(program, words.folder)
        folders = self._contents.folders("PATH", PATH)
        # runc takes no program of a folder that is relative; the C library and shells do, and an empty one is `.`.
        used = (folder for folder in folders if words.by_text or folder.startswith("/"))
        paths = [posixpath.join(self._absolute(folder, words.folder), program) for folder in used]
        if not program:
            return ""
        usable = (path for path in paths if self._may_be_run(path))
        # A missing file is reported by the intended name.
        return next(usable, next((path for path in paths if self.exists(path)), ""))

    def _as(self, user: str, *, loose: bool) -> Execution:
        other = account.named(self._contents, user)
        if other.problem and ":" not in user and not loose:
            raise _NotStarted(other.problem, user)
        return self if other.problem else Execution(self._contents, self._machine, other)

    def _is_there(self, words: Words) -> bool:
        return bool(path := self.located(words)) and self.exists(path)

    def _is_command(self, words: Words) -> bool:
        """Return whether a shell finds a name in PATH, or `uv run` in an environment."""
        return self._is_there(words) or any(path.endswith(f"/bin/{words.program}") for path in self._contents.scripts)

    def _enters(self, words: Words) -> bool:
        """Return whether a program starts in its folder, as far as that is known: one that is not there may be mounted.

        Raises:
            _NotStarted: it must enter a folder that is there, and cannot.
        """
        place = self._absolute("", words.folder)
        trace = self._contents.tree.trace(place)
        refusal = self.refusal(place, RUN)
        if not trace.problem and trace.entry and trace.entry.kind != "directory":
            refusal = Refusal(f"/{trace.path} is no folder", f"/{trace.path}")
        if words.folder and refusal and words.must_enter and not words.loose and trace.problem != "does not exist":
            raise _NotStarted(*refusal)
        return not words.folder or (refusal is None and not self._modules.is_mounted(place))

    def _run(self, words: Words, files: list[str], names: list[str]) -> Words:
        """Run a file as the kernel does; return the program with its arguments."""
        if not words.program:
            raise _NotStarted("its program has no name", "")
        path, arguments = self.located(words), words.arguments
        if words.sourced:  # of a folder that is not there, as those of secrets, it may be mounted
            if self._contents.tree.find(posixpath.dirname(path)):
                files.append(self._file(path, READ))
                names.append(path)
            return Words("")
        if not path and words.program.endswith("\r"):
            name = words.program.rstrip()
            raise _NotStarted(f"{name} ends with a carriage return: the text has line ends of Windows", name)
        if not path:
            raise _NotStarted(f"no folder of PATH has {words.program}", words.program)
        first = len(files) + 1
        named = words.program if "/" in words.program else path
        for _ in range(_MOST_REWRITES + 1):
            file = self._file(path, RUN)
            files.append(file)
            names.append(path)
            if file in self._contents.binaries:
                self._check_program(file)
                self._check_read(path, arguments, words)
                return Words(path, arguments)
            script = self._contents.scripts.get(file)
            if script is None and words.by_text and len(files) == first:
                self._file(path, READ)
                return Words("")
            if script is None:
                entry = self._contents.tree.trace(path).entry
                what = "has no #!, and is no program" if entry and entry.size else "is empty"
                raise _NotStarted(f"/{file} {what}", f"/{file}")
            self._file(path, READ)
            interpreter, problem = launchers.interpreter(script.start)
            if problem:
                raise _NotStarted(f"#! of /{file} {problem}", f"/{file}")
            arguments = (*interpreter.arguments, named, *arguments)
            named = path = self._absolute(interpreter.program, words.folder)
        raise _NotStarted(f"#! leads on more than {_MOST_REWRITES} times", path)

    def _file(self, path: str, right: int) -> str:
        """Return the path of a file after following links."""
        if refusal := self.refusal(path, right):
            raise _NotStarted(*refusal)
        trace = self._contents.tree.trace(path)
        if trace.entry is None or trace.entry.kind != "file":
            raise _NotStarted(
                f"/{trace.path} is a {trace.entry.kind if trace.entry else 'directory'}", f"/{trace.path}"
            )
        return trace.path

    def _check_program(self, path: str) -> None:
        binary = self._contents.binaries[path]
        if binary.kind == "other" and not binary.problem:
            raise _NotStarted(f"/{path} is an object file", f"/{path}")
        if binary.machine not in runs(self._machine) and not (binary.problem and binary.machine.number == 0):
            raise _NotStarted(f"/{path} is for {binary.machine}, the image for {self._machine}", f"/{path}")
        if binary.problem:
            return  # which is a fault of the file
        if binary.interpreter:
            loader = self._file(self._absolute(binary.interpreter), RUN)
            known = self._contents.binaries.get(loader)
            if known is None or known.machine != binary.machine:
                what = f"is for {known.machine}" if known else "is no ELF file"
                raise _NotStarted(f"/{loader}, the loader of /{path}, {what}", f"/{loader}")

    def _check_read(self, program: str, arguments: tuple[str, ...], words: Words) -> None:
        """Check that an interpreter may read its file. What is not there may be mounted, in a folder without files."""
        own = posixpath.basename(words.program)
        by_python = posixpath.basename(program).startswith("python")  # and not by a shell, which may enter a folder
        if own != posixpath.basename(program) and by_python and file_readers.file_of(own, words.arguments, {}):
            program, arguments = words.program, words.arguments  # a script that is found, and runs another one
        name = file_readers.file_of(posixpath.basename(program), arguments, self._contents.environment)
        if not name:
            return
        path = self._absolute(name, words.folder)
        trace, certain = self._contents.tree.trace(path), name.startswith("/") or not words.loose
        if certain:
            self._check_kind(posixpath.basename(program), path, trace, by_python=by_python)
        if trace.entry and trace.entry.kind != "file":
            return
        folder = posixpath.dirname(path)
        if certain and trace.problem != "does not exist":
            self._file(path, READ)
        elif "/" not in name and self._is_command(words._replace(program=name, by_text=True)):
            return
        elif certain and self._contents.tree.find(folder) and not self._modules.is_mounted(folder):
            raise _NotStarted(f"/{trace.path} does not exist, which {posixpath.basename(program)} is to run", path)

    def _check_kind(self, program: str, path: str, trace: Trace, *, by_python: bool) -> None:
        """Check that what an interpreter reads is no folder without a program, and no machine code."""
        if by_python and self._modules.lacks_main(path, trace):
            raise _NotStarted(f"/{trace.path} is a folder without __main__.py", path)
        if trace.path in self._contents.binaries and file_readers.is_text(program):
            raise _NotStarted(f"/{trace.path} is no text, which {program} is to read", path)

    def _check_arguments(self, files: Sequence[str], names: Sequence[str], invoked: Words, words: Words) -> None:
        if reason := launchers.misread(invoked):
            raise _NotStarted(reason, invoked.arguments[-1])
        place = self._absolute("", words.folder)
        if refusal := self._modules.refusal(files, names, invoked.arguments, place, whole=not words.cut):
            raise _NotStarted(*refusal)

    def _may_be_run(self, path: str) -> bool:
        trace = self._contents.tree.trace(path)
        is_file = not trace.problem and trace.entry is not None and trace.entry.kind == "file"
        return is_file and not self.refusal(path, RUN)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or link, which may lead nowhere."""
        folder, trace = self._contents.tree.find(posixpath.dirname(path)), self._contents.tree.trace(path)
        itself = folder and posixpath.join(folder[0], posixpath.basename(path))
        return folder is not None and (trace.problem != "does not exist" or trace.path != itself)

    def _absolute(self, path: str, folder: str = "") -> str:
        return posixpath.join("/", self._contents.folder, folder, path)


def _normal(path: str) -> str:
    return posixpath.normpath(f"/{path}").replace("//", "/")
