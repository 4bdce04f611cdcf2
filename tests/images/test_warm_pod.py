"""What a job's pod runs for a warm layer: the program, in a container of an image, with nothing of Slipway's there."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.warm import warm_pod, warm_run
from cli.warm.warm_pod import PodCaches
from cli.warm.warm_record import WarmRecord
from cli.warm.warm_run import WarmScript
from containers.errors import SlipwayError
from tests.fakes.github.job_pod import JobPod
from tests.images.engine import Image, base_image, docker, pushed, remove
from tests.images.test_start import PYTHON
from tests.images.test_warm import LEAVES

OPEN = "RUN mkdir -p -m 1777 /opt/slipway/warm\n"
USER = "USER 1234:55\n"
TEMP = Path("/runner/_temp")


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    """An image with python3, of a user of its own, who may make the caches' folder or not."""
    made = pushed(PYTHON.format(base=base_image()) + request.param, "warm-pod")
    yield made
    remove(made)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pod have a GPU."""
    line = "    return [*_host(), "
    assert warm_run.HOOK.count(line) == 1
    own = warm_run.HOOK.replace(line, '    return ["gpu NVIDIA H100 80GB HBM3", "driver 580", ')
    monkeypatch.setattr(warm_pod, "HOOK", own)


@pytest.fixture
def pod(image: Image) -> Iterator[JobPod]:
    made = JobPod(image.tag, TEMP)
    yield made
    made.end()


def script(text: str) -> WarmScript:
    return WarmScript(Path("warm/steps.py"), text.encode())


def reference(image: Image) -> str:
    return docker("image", "inspect", "--format", "{{index .RepoDigests 0}}", image.tag).stdout.strip()


def run(pod: JobPod, reference: str, text: str, seconds: float = 60) -> tuple[int, str]:
    program = warm_pod.program(reference, script(text), seconds)
    done = pod.line('python3 -c "$PROGRAM"', {"PROGRAM": program, "SLIPWAY_CACHES": f"{TEMP}/caches"})
    return done.returncode, done.stdout


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("image", [OPEN + USER], indirect=True)
def test_pod_leaves_what_an_engine_would(pod: JobPod, image: Image, tmp_path: Path) -> None:
    ref = reference(image)
    text = LEAVES + "os.symlink('/etc/passwd', os.environ['TRITON_CACHE_DIR'] + '/link')\n"
    status, printed = run(pod, ref, text)
    assert (status, "left out: triton/link is no regular file" in printed) == (0, True), printed
    pod.fetch(f"{TEMP}/caches", tmp_path / "left")
    caches = PodCaches(tmp_path / "left")
    machine = caches.machine(ref, script(text))
    assert machine.owner == replace(warm_run.probe(image.tag, gpu=False).owner, bytecode=("", b""))
    assert (machine.owner.uid, machine.owner.gid) == (1234, 55)
    assert machine.lines[:-1] == ("gpu NVIDIA H100 80GB HBM3", "driver 580")
    with tarfile.open(tmp_path / "left/caches.tar") as archive:
        names = archive.getnames()
    assert names == [f"{kind}/b/a/{name}" for kind in ("inductor", "triton") for name in ("data", "kernel.so")]
    # It ran where the layer will be.
    [folder] = docker("exec", pod.name, "ls", "/opt/slipway/warm").stdout.split()
    sha256 = script(text).sha256
    record = WarmRecord(ref.partition("@")[2], "x", sha256, machine.torch, machine.triton, machine.lines)
    assert record.key == folder


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("image", [OPEN + USER], indirect=True)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import time; time.sleep(1000)", "steps.py: it was not done in 2 s: slipway:warm.seconds is the limit"),
        ("print('no such kernel'); raise SystemExit(3)", "no such kernel"),
    ],
)
def test_script_that_fails_in_a_pod_fails_its_job(pod: JobPod, image: Image, text: str, reason: str) -> None:
    status, printed = run(pod, reference(image), text, 2)
    assert status
    assert printed.splitlines()[-1] == reason


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("image", [USER], indirect=True)
def test_user_without_a_folder_is_told_how_to_make_it(pod: JobPod, image: Image) -> None:
    status, printed = run(pod, reference(image), LEAVES)
    (line,) = printed.splitlines()
    assert status
    assert line.endswith("make it, as root: RUN mkdir -p -m 1777 /opt/slipway/warm")
    assert "user 1234 cannot make the folder of the caches (Permission denied)" in line


@pytest.mark.parametrize("image", [USER], indirect=True)
def test_pod_without_gpu_is_one_line(pod: JobPod, image: Image) -> None:
    status, printed = run(pod, reference(image), LEAVES)
    assert (status, len(printed.splitlines())) == (1, 1)
    assert "this job's container has no GPU of NVIDIA's" in printed


def test_script_that_is_too_long_for_a_pod_is_refused() -> None:
    text = "".join(chr(33 + number * number % 89) + str(number) for number in range(80_000))
    with pytest.raises(SlipwayError, match="bytes are too many for a job's pod"):
        warm_pod.program(f"r.example/a@sha256:{'0' * 64}", script(f"'{text}'"), 60)
