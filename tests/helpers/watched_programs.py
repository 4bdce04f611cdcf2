"""Programs of a project run under strace, with a canary in each secret: what each that they start is given, and where canaries are."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.engine.project import Project
from tests.helpers.machine_programs import have

PULUMI = re.compile(r"pulumi(-.*)?|python[0-9.]*|env")
"""Pulumi, its plugins, and the Python that its launchers start: the program and the providers."""

_EXEC = re.compile(
    r'\bexecve\("(?P<file>[^"]*)", \[(?P<argv>.*?)\], \[(?P<env>.*)\](\) += 0| <unfinished \.\.\.>)$', re.MULTILINE
)


class Watched:
    """A project whose every secret is a canary, on a machine where the start of each process is noted.

    ``secrets`` are the canaries by name; a secret of several lines is known by one of them. ``output`` is all that was
    printed.
    """

    def __init__(self, project: Project, folder: Path) -> None:
        have("strace")
        self.project = project
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.output = ""
        self.secrets: dict[str, str] = {}
        self._folder = folder
        project.environment["TMPDIR"] = str(self.temporary)

    def plant(self, *names: str) -> None:
        """Make a canary for each of these secrets."""
        self.secrets |= {name: f"canary{uuid.uuid4().hex}" for name in names}

    def prepare(self, *words: str, secret: str = "") -> None:
        """Run Pulumi unwatched, which reads ``secret`` from standard input."""
        words = ("pulumi", *words, "--non-interactive")
        root, environment = self.project.root, self.project.environment
        subprocess.run(words, cwd=root, env=environment, input=secret, text=True, check=True, capture_output=True)

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Run a program under strace, in the project's folder by default; return its output."""
        trace = [
            "strace",
            "--follow-forks",
            "--seccomp-bpf",
            "--output",
            str(self._folder / f"trace.{uuid.uuid4().hex}"),
        ]
        trace += ["--trace=execve", "--no-abbrev", "--string-limit=1000000", "--"]
        done = subprocess.run(
            [*trace, *words],
            cwd=cwd or self.project.root,
            env=self.project.environment,
            capture_output=True,
            check=False,
        )
        output = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, f"{shlex.join(words)}\n{output}"
        self.output += output
        return output

    def pulumi(self, *words: str) -> str:
        """Run Pulumi on the stack ``t``."""
        return self.run("pulumi", *words, "--non-interactive", "--stack", "t")

    def slipway(self, *words: str, cwd: Path | None = None) -> str:
        """Run the command `slipway`."""
        return self.run(sys.executable, "-m", "stacks", *words, cwd=cwd)

    def processes(self) -> Iterator[tuple[str, str, str]]:
        """Yield the program, the arguments and the environment of each process that was started."""
        for file in self._folder.glob("trace.*"):
            for match in _EXEC.finditer(file.read_text(errors="replace")):
                yield Path(match["file"]).name, match["argv"], match["env"]

    def started(self) -> dict[str, set[str]]:
        """Return the secrets in the environment of each program, after a check that none is in its arguments."""
        arguments: defaultdict[str, set[str]] = defaultdict(set)
        environments: defaultdict[str, set[str]] = defaultdict(set)
        for program, argv, variables in self.processes():
            arguments[program] |= self.hits(argv.encode())
            environments[program] |= self.hits(variables.encode())
        assert {program: names for program, names in arguments.items() if names} == {}
        return environments

    def hits(self, content: bytes) -> set[str]:
        """Return the names of the secrets that a content has, as they are or in base64."""
        return {
            name
            for name, secret in self.secrets.items()
            if any(form in content for form in (secret.encode(), *_encoded(secret)))
        }

    def left(self) -> dict[str, set[str]]:
        """Return the secrets in each file that there is now, besides the traces, after a check of temporary folders."""
        assert [path.name for path in self.temporary.iterdir() if path.name.startswith("slipway")] == []
        files = [path for path in self._folder.rglob("*") if path.is_file() and not path.name.startswith("trace.")]
        return {str(path.relative_to(self._folder)): hits for path in files if (hits := self.hits(_opened(path)))}


def needless(started: Mapping[str, set[str]], needing: Mapping[str, re.Pattern[str]]) -> set[tuple[str, str]]:
    """Return each program with a secret in its environment that ``needing`` does not name for it."""
    return {
        (program, name) for program, names in started.items() for name in names if not needing[name].fullmatch(program)
    }


def _encoded(secret: str) -> Iterator[bytes]:
    """Yield the base64 of a secret at each place in a longer text, without what its neighbours decide."""
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + secret.encode() + b"\0" * 3)
        yield text[4 if offset else 0 : -8]


def _opened(path: Path) -> bytes:
    """Return a file's content; a compressed layer's too."""
    content = path.read_bytes()
    return content + (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else b"")
