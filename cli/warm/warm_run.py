"""A script in a container of a published image, and what it leaves in its caches.

The container has no network, no capabilities and a read-only file system. Its caches and its /tmp are file systems of
their own in memory, each with a limit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

from cli.startup.docker_client import ENGINES, KILLED, docker, isolated, pulled, python_output, run_failure
from cli.warm import warm_container, warm_hook
from cli.warm.warm_layer import LayerOwner
from containers.blob import BlobUnreadable
from containers.child_environment import child_environment
from containers.engine.connection import Tail
from containers.errors import MALFORMED, SlipwayError, one_line
from containers.image.layers import layer

_LONGEST_SCRIPT: Final = 1 << 20
_LONGEST_TEXT: Final = 8192
_MOST_TEXTS: Final = 32
_LARGEST_ID: Final = (1 << 32) - 2
"""Of a user or group; the next number is none (chown(2))."""
_MODULES: Final = re.compile(r"(?=.{1,255}$)(?!/opt/slipway/)/((?!\.wh\.)[!-.0-~]+/)*(site|dist)-packages")
"""The folder of a Python's modules (`sysconfig`, purelib; Debian's is dist-packages). No part of it removes files."""
_TAG: Final = re.compile(r"([a-z]+-[0-9]+)?", re.ASCII)
"""How the name of a module's bytecode ends, such as ``cpython-311`` (`sys.implementation.cache_tag`)."""
_LONGEST_BYTECODE: Final = 1 << 15
"""In Base64; that of Python 3.11 has 11,000 characters."""
_PROBE_SECONDS: Final = 120
_MOST: Final = 1 << 14
"""Bytes of what the script printed that are kept: its end."""
_LAST_LINES: Final = 20
"""Lines of what a script printed before it failed that are shown."""
_INODES: Final = 150_000
PROGRAM: Final = Path(warm_container.__file__).read_text(encoding="utf-8")
HOOK: Final = Path(warm_hook.__file__).read_text(encoding="utf-8")

Result = TypeVar("Result")


@dataclass(frozen=True)
class WarmMachine:
    """What an image's Python says of the machine and of the image."""

    lines: tuple[str, ...]
    torch: str
    triton: str
    owner: LayerOwner

    @property
    def architecture(self) -> str:
        """The machine's architecture, as its kernel calls it."""
        return self.lines[-1].split()[1]

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> WarmMachine:
        """Return what a program in the image said; the image may have said anything.

        Raises:
            ValueError, or another of MALFORMED: it is no description.
        """
        owner = LayerOwner(int(about["uid"]), int(about["gid"]), str(about["modules"]))
        machine = cls(tuple(map(str, about["machine"])), str(about["torch"]), str(about["triton"]), owner)
        texts = [*machine.lines, machine.torch, machine.triton, owner.modules]
        if not (
            all(text.isprintable() and len(text) <= _LONGEST_TEXT for text in texts)
            and len(texts) <= _MOST_TEXTS
            and re.match(r"processor \S", machine.lines[-1])
            and all(line.startswith(("gpu ", "driver ")) for line in machine.lines[:-1])
            and _MODULES.fullmatch(owner.modules)
            and layer.normal(owner.modules) == owner.modules.lstrip("/")
            and all(0 <= number <= _LARGEST_ID for number in (owner.uid, owner.gid))
        ):
            raise ValueError("no description")
        return machine


@dataclass(frozen=True)
class WarmLimits:
    """What a script may take: seconds, and bytes of its caches."""

    seconds: float
    size: int


@dataclass(frozen=True)
class WarmScript:
    """A script as it was read once: the script of the record runs, whatever becomes of the file."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """The SHA-256 of its content, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @classmethod
    def read(cls, path: Path) -> WarmScript:
        """Read a script. Raises SlipwayError: it cannot be read, or is too long."""
        try:
            with path.open("rb") as file:
                content = file.read(_LONGEST_SCRIPT + 1)
        except OSError as error:
            raise SlipwayError(f"slipway:warm.script: {path}: cannot be read: {error.strerror}") from None
        if len(content) > _LONGEST_SCRIPT:
            raise SlipwayError(f"slipway:warm.script: {path}: more than {_LONGEST_SCRIPT:,} bytes are not run")
        return cls(path, content)


def probe(reference: str, *, gpu: bool) -> WarmMachine:
    """Return what the machine is, as a container of the image sees it.

    Raises SlipwayError: the engine cannot run the image's python3, or that prints something else.
    """
    printed = python_output("warm", reference, ["-c", PROGRAM, HOOK], _PROBE_SECONDS, gpu=gpu)
    try:
        about = json.loads(printed.strip().rpartition("\n")[2])
        machine = WarmMachine.of(about)
        return replace(machine, owner=replace(machine.owner, bytecode=_bytecode(about)))
    except MALFORMED:
        raise SlipwayError(f"{reference}: its python3 printed no description: '{one_line(printed)}'") from None


def _bytecode(about: Mapping[str, Any]) -> tuple[str, bytes]:
    tag, content = about["bytecode"] or ("", "")
    if not _TAG.fullmatch(tag) or len(content) > _LONGEST_BYTECODE:
        raise ValueError("no bytecode")
    return tag, base64.b64decode(content, validate=True)


@dataclass(frozen=True)
class EngineCaches:
    """Caches that the script leaves in a container of this machine's engine, with its GPUs if ``gpu`` is true."""

    gpu: bool

    place = "on this machine"

    @property
    def host(self) -> str:
        """The machine's name."""
        return socket.gethostname()

    def machine(self, reference: str, _script: WarmScript) -> WarmMachine:
        """Return what :func:`probe` does, after a pull of the image."""
        pulled(reference)
        return probe(reference, gpu=self.gpu)

    def read(
        self,
        reference: str,
        script: WarmScript,
        key: str,
        owner: LayerOwner,
        limits: WarmLimits,
        *,
        read: Callable[[IO[bytes]], Result],
    ) -> tuple[Result, list[str]]:
        """Run a script; return the result of ``read`` on the archive of its caches, and what was left out.

        Raises SlipwayError: the script fails, takes too long or leaves too much; or ``read`` refuses what it left.
        """
        name, root = f"slipway-warm-{secrets.token_hex(6)}", f"{warm_hook.ROOT}/{key}"
        caches = f"{root}:rw,exec,nosuid,nodev,size={limits.size},nr_inodes={_INODES}"
        options = ["--interactive", "--read-only", "--tmpfs", f"{caches},mode=0700,uid={owner.uid},gid={owner.gid}"]
        options += ["--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={limits.size},nr_inodes={_INODES},mode=1777"]  # noqa: S108 - in the container
        program = [reference, "-c", PROGRAM, HOOK, root, script.path.name, str(limits.seconds)]
        words = ["docker", "run", *isolated(name, gpu=self.gpu), *options, *program]
        pipe, environment = subprocess.PIPE, child_environment("docker")
        with tempfile.TemporaryFile() as stdin:
            stdin.write(script.content)
            stdin.seek(0)
            process = subprocess.Popen(words, stdin=stdin, stdout=pipe, stderr=pipe, env=environment)
        with process:
            late = threading.Timer(limits.seconds, process.kill)
            printed = Tail(cast("IO[bytes]", process.stderr), _MOST)
            late.start()
            try:
                printed.start()
                result = _read(process, read)
                status = process.wait()
            except BaseException:
                process.kill()
                raise
            finally:
                late.cancel()
                if process.returncode != 0:  # the client's end is not the container's
                    docker(["rm", "--force", name], 60)
            printed.join(10)
        if status or result is None:
            raise _failure(reference, script.path, status, printed.text, limits)
        left_out = [line for line in printed.text.splitlines() if line.startswith("left out: ")]
        return result, left_out


def _read(process: subprocess.Popen[bytes], read: Callable[[IO[bytes]], Result]) -> Result | None:
    """Return what ``read`` returns of the process's output; None if it wrote no archive, as one that fails."""
    stream = cast("IO[bytes]", process.stdout)
    try:
        return read(stream)
    except BlobUnreadable as error:
        if process.wait() == 0:
            raise SlipwayError(f"what the script left is no archive of files: {error}") from None
        return None


def _failure(reference: str, script: Path, status: int, printed: str, limits: WarmLimits) -> SlipwayError:
    if status == -signal.SIGKILL:
        return SlipwayError(f"{script}: it was not done in {limits.seconds:g} s: slipway:warm.seconds is the limit")
    if status == warm_container.FULL:
        return SlipwayError(f"{script}: its caches have no room left in {limits.size:,} bytes: see slipway:warm.size")
    if status in ENGINES:
        return run_failure(reference, printed, status)
    lines = [one_line(line, 300) for line in printed.splitlines() if line.strip()][-_LAST_LINES:]
    reason = KILLED.get(status) or f"it failed with status {status}: {lines.pop() if lines else 'it printed nothing'}"
    for line in lines:
        print(f"  {line}", file=sys.stderr)
    return SlipwayError(f"{script}: {reason}")


def left_out(lines: Sequence[str]) -> str:
    """Return in a line what was left out."""
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(one_line(line) for line in lines[:3]) + more
