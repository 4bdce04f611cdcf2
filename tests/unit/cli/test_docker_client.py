"""The docker client, a stand-in here: what is kept of what it prints, and how long it may run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.startup import docker_client, startup_text
from cli.startup.docker_client import Pull
from cli.startup.measurement import Settings, Start, measure, read_script
from containers.errors import SlipwayError
from containers.image.registry_image import Image
from tests.fakes import compiling_torch
from tests.helpers.every import every


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a shell script as the docker client."""

    def write(script: str) -> None:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)

    return write


def test_client_that_prints_much_has_its_end_kept(client: Callable[[str], None]) -> None:
    client(
        "echo first; sleep 0.05; echo error >&2; head -c 70000 /dev/zero | tr '\\0' x; sleep 0.05; echo last; exit 3"
    )
    said: list[str] = []
    status, printed = docker_client.docker(["run", "x"], 60, said.append)
    assert status == 3
    assert len(printed) == 1 << 16
    assert printed.endswith("xlast\n")
    assert "".join(said).startswith("first\nerror\nxxx")


def test_client_is_told_what_to_run_and_asked_nothing(client: Callable[[str], None]) -> None:
    client('echo "$@"; cat')
    assert docker_client.docker(["image", "inspect", "a b"], 60) == (0, "image inspect a b\n")


def test_client_that_does_not_end_is_ended(client: Callable[[str], None]) -> None:
    client("exec sleep 60")
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 0.1 seconds"):
        docker_client.docker(["run", "x"], 0.1)
    assert time.monotonic() - begun < 30


def test_missing_client_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlipwayError, match=r"no docker client on PATH: it runs the image; `slipway up` sets one up$"):
        docker_client.docker(["run", "x"], 60)


def test_pull_is_timed_and_refused_in_one_line(client: Callable[[str], None]) -> None:
    client('[ "$1" = image ] && [ "$5" = there ]')
    assert docker_client.pulled("there") is None
    client('[ "$1" = pull ] && echo "a: Download complete" && sleep 0.5 && echo "a: Pull complete"')
    pull = docker_client.pulled("absent")
    assert pull is not None
    assert pull.unpack > 0.4
    client('[ "$1" = pull ] && sleep 0.5 && echo "Digest: sha256:1"')
    pull = docker_client.pulled("absent")
    assert pull is not None
    assert pull.download > 0.4, "an engine that says nothing of a layer downloads it all the same"
    client('[ "$1" = pull ] && echo "manifest unknown" >&2; exit 1')
    with pytest.raises(SlipwayError, match="manifest unknown"):
        docker_client.pulled("absent")


@every(
    "status, printed, expected",
    [
        (
            137,
            "first\n",
            "r/x: its container was killed, by hand, with its engine or because this machine has no memory left",
        ),
        (
            1,
            "exec /usr/bin/python3: exec format error",
            "r/x: its python3 is for another platform than the engine's, which emulates none: the Docker engine: `docker run` failed: exec /usr/bin/python3: exec format error",
        ),
        (139, "", "r/x: its python3 ended with status 139: it printed no reason"),
        (1, "Fatal: no\nImportError: x\n\n<no Python frame>\n", "r/x: its python3 ended with status 1: ImportError: x"),
        (
            125,
            'x\ntime="2026-11-29T20:07:55Z" level=error msg="error waiting for container: unexpected EOF"\n',
            "r/x: the Docker engine: `docker run` failed: error waiting for container: unexpected EOF; a connection broke: once the engine answers, run this again",
        ),
    ],
)
def test_container_that_fails_says_why(status: int, printed: str, expected: str) -> None:
    assert str(docker_client.run_failure("r/x", printed, status)) == expected


@pytest.fixture
def started(client: Callable[[str], None], tmp_path: Path) -> Callable[..., Start]:
    """Measures an image whose Python is this one, with a torch that is a stand-in."""
    packages = compiling_torch.write(tmp_path / "packages")

    def measured(fault: str = "", script: tuple[str, str] = ("", ""), module: str = "torch") -> Start:
        client(
            f"[ $1 = image ] && exit 0; while [ $1 != r/x ]; do shift; done; shift\n"
            f"PYTHONPATH={packages} STUB_COMPILE='{fault}' exec {sys.executable} \"$@\""
        )
        image = Start("r/x", 7, 2)
        measure([image], 2, Settings(module, gpu=True, seconds=60, script=script))
        return image

    return measured


@pytest.mark.parametrize(
    ("fault", "failed", "skipped"),
    [
        ("", "", ""),
        ("no compiler", "", "compiled: no C compiler"),
        ("off", "compiled: RuntimeError: torch.compile compiled nothing", ""),
    ],
)
def test_step_is_skipped_without_a_compiler_alone(
    started: Callable[..., Start], fault: str, failed: str, skipped: str
) -> None:
    image = started(fault)
    assert (image.failed, image.skipped) == (failed, skipped)
    assert len(image.runs) == (1 if failed else 2)
    assert ("compiled" in image.runs[0]) == (fault == "")
    assert (f"r/x: skipped: {skipped}" in startup_text.lines([image])) == bool(skipped)


@pytest.mark.parametrize("module", ["torch", ""])
def test_own_script_is_in_place_of_the_compiled_step(started: Callable[..., Start], module: str) -> None:
    image = started("no compiler", ("a b.py", "import sys; assert sys.argv == [__file__]; print('x' * 70000)"), module)
    assert (image.failed, image.skipped) == ("", "")
    assert [*image.runs[0]][-1] == "script"
    assert "compiled" not in image.runs[0]
    assert started(script=("s.py", "raise OSError('gone')"), module=module).failed == (
        "script: RuntimeError: s.py ended with status 1: OSError: gone"
    )


@every(
    "content, refusal",
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "it is no text in UTF-8; give a Python script"),
        ("ä".encode() * 50_001, "at most 100,000 bytes are run, none of them zero"),
        (b"#" * 100_001, "at most 100,000 bytes are run, none of them zero"),
        (b"\0", "at most 100,000 bytes are run, none of them zero"),
    ],
)
def test_script_that_is_none_is_one_line(tmp_path: Path, content: bytes | None, refusal: str) -> None:
    path = tmp_path / "s.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SlipwayError, match=f"^--script {path}: {refusal}$"):
        read_script(path)


def test_engine_that_does_not_answer_fails_its_image_alone() -> None:
    def fetched() -> Image:
        raise subprocess.TimeoutExpired(["docker", "version"], 60)

    start = Start.of("r/x:1", fetched)
    assert (start.reference, start.failed[:29]) == ("r/x:1", "docker did not end within 60 ")


def test_json_of_a_start_has_all_that_was_measured() -> None:
    start = Start(
        "r/x@sha256:1", 7, 2, Pull(1.5, 0.5), [{"container": 0.25}], "3.12", "2.8", "H100", "import: no torch", "x: y"
    )
    assert start.as_json() == {
        "reference": "r/x@sha256:1",
        "bytes": 7,
        "layers": 2,
        "pull": {"download": 1.5, "unpack": 0.5},
        "runs": [{"container": 0.25}],
        "python": "3.12",
        "version": "2.8",
        "device": "H100",
        "failed": "import: no torch",
        "skipped": "x: y",
    }
    assert Start("r/x@sha256:1", 7, 2).as_json()["pull"] is None
