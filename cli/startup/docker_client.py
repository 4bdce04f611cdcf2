"""Containers of an image by the docker client, for what `slipway` runs in an image: isolated, and ended in time."""

from __future__ import annotations

import io
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, cast

from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.engine.engine_platforms import engine_failure
from containers.errors import SlipwayError, one_line

_MOST: Final = 1 << 16
"""Bytes of a program's output that are kept: its end."""
ENGINES: Final = range(125, 128)
"""Exit statuses of `docker run` where the engine could not run the program (its manual, "Exit status")."""
KILLED: Final = {
    128
    + signal.SIGKILL: "its container was killed, by hand, with its engine or because this machine has no memory left"
}
"""The exit status of `docker run` after a SIGKILL, and what that means."""
_NO_RUN: Final = {
    'exec: "python3"': "it has no python3 on PATH, which runs in it: ",
    "could not select device driver": "its engine has no NVIDIA container toolkit; install that, or take --no-gpu: ",
    "exec format error": "its python3 is for another platform than the engine's, which emulates none: ",
}
"""What runc or the engine says if it cannot start the program (`docker run` v26.1.5), and what that means."""
_HINT: Final = re.compile(r"^(Run|See) 'docker run --help'.*$", re.MULTILINE)
"""What the client ends its errors with."""


@dataclass(frozen=True)
class Pull:
    """How the engine got an image: seconds until the last layer was there, and from then until all were unpacked."""

    download: float
    unpack: float


def isolated(name: str, *, gpu: bool) -> list[str]:
    """Return the options of a container that runs the image's python3 without network, capabilities and logs."""
    options = ["--rm", "--name", name, "--pull", "never", "--network", "none", "--log-driver", "none"]
    options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--entrypoint", "python3"]
    return [*options, *(["--gpus", "all"] if gpu else [])]


def python_output(kind: str, reference: str, words: Sequence[str], seconds: float, *, gpu: bool) -> str:
    """Run an image's python3 in a container whose name says the ``kind`` of run; return what it printed.

    Raises:
        SlipwayError: there is no docker client, or the engine cannot run it.
        subprocess.TimeoutExpired: it was ended after ``seconds``.
    """
    name = f"slipway-{kind}-{secrets.token_hex(6)}"
    try:
        status, printed = docker(["run", *isolated(name, gpu=gpu), reference, *words], seconds)
    except BaseException:
        docker(["rm", "--force", name], 60)  # the client's end is not the container's
        raise
    if status:
        raise run_failure(reference, printed, status)
    return printed


def run_failure(reference: str, printed: str, status: int) -> SlipwayError:
    """Return the error of a container that the engine could not run, or whose python3 failed."""
    why = next((text for words, text in _NO_RUN.items() if words in printed), "")
    if status in ENGINES or why:
        return SlipwayError(f"{reference}: {why}{engine_failure('run', _HINT.sub('', printed), status)}")
    # Python ends what it says of a failed start with `<no Python frame>`.
    lines = [line for line in printed.splitlines() if ": " in line] or ["it printed no reason"]
    ended = f"its python3 ended with status {status}: {one_line(lines[-1], 300)}"
    return SlipwayError(f"{reference}: {KILLED.get(status, ended)}")


def own_platform(among: Collection[str]) -> str | None:
    """Return the engine's platform, as ``linux/amd64``; None where there is none to choose ``among``.

    Raises SlipwayError: the engine cannot be reached.
    """
    if len(among) < 2:
        return None
    status, printed = docker(["version", "--format", "{{.Server.Os}}/{{.Server.Arch}}"], 60)
    if status:
        raise engine_failure("version", printed, status)
    return printed.strip()


def pulled(reference: str) -> Pull | None:
    """Pull an image; return how long it took, or None if the engine had it.

    Raises SlipwayError: the engine cannot be reached, or cannot pull it.
    """
    if docker(["image", "inspect", "--format", "{{.Id}}", reference], 60)[0] == 0:
        return None
    began = downloaded = time.monotonic()

    def progress(text: str) -> None:
        nonlocal downloaded
        # Docker leaves steps out that follow each other quickly: of a small layer it may say the last one alone.
        unseen = downloaded == began and ": Pull complete" in text
        if unseen or any(step in text for step in (": Verifying Checksum", ": Download complete", ": Already exists")):
            downloaded = time.monotonic()

    status, printed = docker(["pull", reference], NETWORK_SECONDS, progress)
    if status:
        raise engine_failure("pull", printed, status)
    ended = time.monotonic()
    if downloaded == began:  # it said nothing of any layer: all counts as the download
        downloaded = ended
    return Pull(downloaded - began, ended - downloaded)


def docker(words: Sequence[str], seconds: float, progress: Callable[[str], object] = len) -> tuple[int, str]:
    """Run the docker client; return its status, and the end of what it and its container printed.

    Raises:
        SlipwayError: there is no docker client.
        subprocess.TimeoutExpired: it was ended after ``seconds``.
    """
    command = ["docker", *words]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment("docker"),
        )
    except FileNotFoundError:
        raise SlipwayError("no docker client on PATH: it runs the image; `slipway up` sets one up") from None
    late = threading.Timer(seconds, process.kill)
    late.start()
    printed = b""
    with process:
        try:
            stream = cast("io.BufferedReader", process.stdout)
            # Its end alone is kept: a container may print for as long as it runs.
            while content := stream.read1(_MOST):
                progress(content.decode(errors="replace"))
                printed = (printed + content)[-_MOST:]
        except BaseException:
            process.kill()
            raise
        finally:
            late.cancel()
    if process.returncode == -signal.SIGKILL:
        raise subprocess.TimeoutExpired(command[:2], seconds)
    return process.returncode, printed.decode(errors="replace")
