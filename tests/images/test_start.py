"""`slipway start` on images whose start is known: slow ones, broken ones, and hostile ones."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from cli.main import main
from containers.image.registry_image import fetch
from containers.registry.client import INDEXES, Repository
from tests.images.engine import Image, base_image, docker, pushed, remove, unique

REGISTRY = os.environ.get("SLIPWAY_REGISTRY", "127.0.0.1:5000")
PYTHON = """FROM {base}
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-minimal libpython3-stdlib \\
 && rm -rf /var/lib/apt/lists/*
"""
USER = 'USER 1234\nENTRYPOINT ["/bin/false"]\n'
SLOW = """RUN printf 'import os, time\\nprint("loading")\\ntime.sleep(1.5)\\n__version__ = "7.1 user %%s" %% os.getuid()\\n' \\
 > /usr/lib/python3.11/slow.py
"""
BROKEN = """RUN printf 'raise OSError("libgone.so.1: cannot open shared object file")\\n' > /usr/lib/python3.11/slow.py
"""

Push = Callable[[str], str]


@pytest.fixture(scope="module")
def push() -> Iterator[Push]:
    """Builds a Dockerfile, pushes the image, and returns its reference."""
    images: list[Image] = []

    def push_one(dockerfile: str) -> str:
        images.append(pushed(dockerfile.format(base=base_image()), "start"))
        return images[-1].tag

    yield push_one
    for image in images:
        remove(image)


@pytest.fixture(scope="module")
def slow(push: Push) -> str:
    return push(PYTHON + SLOW + USER)


def start(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["start", *words]) == status, capsys.readouterr()
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["start", *words]) == 1
    [line] = capsys.readouterr().err.splitlines()
    return line


def containers() -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", "name=slipway-start-").stdout.split()


def test_slow_import_takes_its_time_as_the_images_user(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    [image] = json.loads(start(capsys, slow, "--import", "slow", "--runs", "2", "--json"))
    assert image["version"] == "slow 7.1 user 1234"
    assert (image["pull"], image["failed"], len(image["runs"])) == (None, "", 2)
    for run in image["runs"]:
        assert list(run) == ["container", "interpreter", "import", "import_cpu"]
        assert run["import"] >= 1.5 > run["import_cpu"]
        assert 0 < run["container"] + run["interpreter"] < 120
    digest = docker("image", "inspect", "--format", "{{index .RepoDigests 0}}", slow).stdout.strip().partition("@")[2]
    assert image["reference"] == f"{slow}@{digest}"


def test_missing_image_is_pulled_and_timed(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, reference = unique("made").partition(":")[2], f"{REGISTRY}/{unique('start')}"
    # Committed and not built: a build's cache would keep the layer.
    docker(
        "run", "--name", name, "--user", "0", "--entrypoint", "sh", slow, "-c", "head -c 30000000 /dev/urandom > /file"
    )
    docker("commit", name, reference)
    docker("rm", name)
    docker("push", "--quiet", reference)
    remove(Image(reference))
    [image] = json.loads(start(capsys, reference, "--import", "", "--runs", "1", "--json"))
    assert image["bytes"] > 30_000_000
    assert image["pull"]["download"] > 0
    assert list(image["pull"]) == ["download", "unpack"]  # of a quick pull Docker may say nothing: all is download then
    assert list(image["runs"][0]) == ["container", "interpreter"]
    again = start(capsys, reference, "--import", "", "--runs", "1")
    assert [line.split() for line in again.splitlines()[3:5]] == [["download", "here"], ["unpack", "here"]]
    remove(Image(image["reference"]))


def test_two_images_stand_side_by_side(slow: str, push: Push, capsys: pytest.CaptureFixture[str]) -> None:
    other = push(PYTHON + BROKEN)
    assert main(["start", slow, "--against", other, "--import", "slow", "--runs", "2"]) == 1
    printed, said = capsys.readouterr()
    lines = printed.splitlines()
    assert lines[0].startswith(f"[1] {slow}@sha256:")
    assert lines[3].split() == ["first", "[1]", "again", "[1]", "first", "[2]", "again", "[2]"]
    [row] = [line for line in lines if line.startswith("import ") and "CPU" not in line]
    assert len(row.split()) == 5, "the broken one has no time"
    assert said.endswith(": import: OSError: libgone.so.1: cannot open shared object file\n")


def test_other_image_is_measured_beside_one_that_fails(
    slow: str, push: Push, capsys: pytest.CaptureFixture[str]
) -> None:
    for failing, why in (
        (push("FROM {base}\n"), "it has no python3"),
        (push("FROM {base}\nUSER nobodyhere\n"), "unable to find user nobodyhere"),
        (push(PYTHON + "ENV PYTHONHOME=/nowhere\n"), "its python3 ended with status 1: ModuleNotFoundError: "),
        ("127.0.0.1:1/none:1", "request to 127.0.0.1:1 failed"),
    ):
        for words in ([failing, "--against", slow], [slow, "--against", failing]):
            images = json.loads(start(capsys, *words, "--import", "slow", "--runs", "1", "--json", status=1))
            ends = {image["failed"]: len(image["runs"]) for image in images}
            assert {reason.startswith(why) or why in reason: runs for reason, runs in ends.items()} == {
                True: 0,
                False: 1,
            }


def test_image_of_the_engines_platform_is_measured(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of several in an index, as of docker.io/library/python:3.12."""
    image, several = fetch(slow), f"{slow}-several"
    listed = {"mediaType": image.manifest.media_type, "digest": image.digest, "size": len(image.manifest.body)}
    platforms = [{"os": "linux", "architecture": name} for name in ("arm64", "amd64", "s390x")]
    content = {"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": [{**listed, "platform": p} for p in platforms]}
    Repository(several).put(several.rpartition(":")[2], json.dumps(content).encode(), INDEXES[0])
    [measured] = json.loads(start(capsys, several, "--import", "", "--runs", "1", "--json"))
    assert measured["reference"].endswith(f"@{image.digest}")


def test_container_that_hangs_is_ended(push: Push, capsys: pytest.CaptureFixture[str]) -> None:
    hanging = push(PYTHON + "RUN echo 'while True: pass' > /usr/lib/python3.11/slow.py\n")
    said = refused(capsys, hanging, "--import", "slow", "--runs", "3", "--seconds", "8")
    assert said.endswith(": it was not done in 8 s; --seconds gives it more")
    assert containers() == []


def test_interrupt_leaves_no_container(push: Push) -> None:
    hanging = push(PYTHON + "RUN echo 'import time; time.sleep(600)' > /usr/lib/python3.11/slow.py\n")
    words = ["start", hanging, "--import", "slow"]
    command = [sys.executable, "-c", "from cli.main import run; run()", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not containers():
            assert process.poll() is None, process.communicate()
        process.send_signal(2)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.strip()) == (130, "interrupted")
    assert containers() == []


def test_image_without_python_is_refused(push: Push, capsys: pytest.CaptureFixture[str]) -> None:
    reference = push("FROM scratch\nCOPY --from={base} /bin/true /true\n")
    assert "it has no python3 on PATH, which runs in it" in refused(capsys, reference)


def test_image_of_another_platform_is_told_so(push: Push, capsys: pytest.CaptureFixture[str]) -> None:
    """As on an engine that emulates none: its python3 is the header of a program for 64-bit RISC-V."""
    header = base64.b64encode(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00\x01" + bytes(43)).decode()
    program = f"RUN echo {header} | base64 -d > /usr/bin/python3 && chmod 755 /usr/bin/python3\n"
    said = refused(capsys, push("FROM {base}\n" + program))
    assert "its python3 is for another platform than the engine's" in said


@pytest.mark.parametrize(
    "program",
    [
        "echo '{\"seconds\": 5}'",
        "exit 0",
        "exec head -c 300000000 /dev/zero",
        f'echo \'{{"started": 1{"0" * 400}, "seconds": {{}}}}\'',
        'echo \'{"started": 1, "seconds": {"interpreter": NaN}}\'',
    ],
    ids=["text", "nothing", "zeros", "large", "no number"],
)
def test_python_that_lies_is_one_line(program: str, push: Push, capsys: pytest.CaptureFixture[str]) -> None:
    script = base64.b64encode(f"#!/bin/sh\n{program}\n".encode()).decode()
    reference = push(f"FROM {{base}}\nRUN echo {script} | base64 -d > /usr/bin/python3 && chmod 755 /usr/bin/python3\n")
    assert "its python3 printed no report" in refused(capsys, reference)


def test_missing_image_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    reference = f"{REGISTRY}/{unique('none')}"
    assert reference in refused(capsys, reference)
