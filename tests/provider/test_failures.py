"""Failures: each has an error of one line, and the next run recovers."""

from __future__ import annotations

import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from google.protobuf import empty_pb2

from tests.fakes.docker_relay import Relay
from tests.provider.conftest import USER, Registry, private_registry, write
from tests.provider.plugin import SELECTED, Failure, Plugin, started
from tests.provider.test_image import PLATFORM, SCRATCH, Maker, maker, with_shell
from toolchain.provider.provider_base import Secret

__all__ = ["maker"]

EMBEDDED = SELECTED == "embedded"


def error_text(failure: pytest.ExceptionInfo[Failure]) -> str:
    text = str(failure.value)
    assert "\n" not in text or not EMBEDDED
    return text


def test_failing_step_error_has_its_last_lines(maker: Maker, shell: Path) -> None:
    """An error has the step and its last lines. The official provider has only the exit code."""
    files = with_shell(
        maker, shell, "RUN for i in 1 2 3; do echo line $i; done; sleep 0.2; echo the reason >&2; exit 7"
    )
    with pytest.raises(Failure, match=r"exit code: 7") as failure:
        maker.create(files, skipPush=True)
    if EMBEDDED:
        head, *lines = str(failure.value).splitlines()
        line = next(n for n, text in enumerate(files["Dockerfile"].splitlines(), 1) if text.startswith("RUN for i"))
        place = rf"\S*Dockerfile:{line}: step '\[2/2\] RUN for i in"
        assert re.match(rf"error building image {re.escape(maker.name)}:v1: {place}", head), head
        assert head.endswith("' failed: exit code: 7; the last lines of its output:")
        assert [line.strip() for line in lines] == ["line 1", "line 2", "line 3", "the reason"]


def test_disk_full_error_has_advice(maker: Maker, shell: Path) -> None:
    with pytest.raises(Failure, match="exit code: 1") as failure:
        maker.create(with_shell(maker, shell, "RUN echo much > /dev/full"), skipPush=True)
    if EMBEDDED:
        assert "No space left on device" in str(failure.value)
        assert "Free space where the Docker daemon keeps its data" in str(failure.value)


def test_failing_step_quotes_its_last_lines_only(maker: Maker, shell: Path) -> None:
    files = with_shell(maker, shell, "RUN i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo line $i; done; exit 1")
    with pytest.raises(Failure) as failure:
        maker.create(files, skipPush=True)
    if EMBEDDED:
        lines = [line.strip() for line in str(failure.value).splitlines()[1:]]
        assert lines == [f"line {number}" for number in range(481, 501)]


def test_failing_step_of_first_builder_has_last_line(maker: Maker, shell: Path) -> None:
    files = with_shell(maker, shell, "RUN echo the reason; exit 7")
    with pytest.raises(Failure, match=r"code: 7") as failure:
        maker.create(files, build={"builderVersion": "BuilderV1"}, skipPush=True)
    if EMBEDDED:
        assert "Step 4/4 : RUN" in str(failure.value)
        assert str(failure.value).splitlines()[-1].strip() == "the reason"


@pytest.mark.parametrize(
    ("dockerfile", "message"),
    [
        ("FROM scratch\nCOYP f /\n", "unknown instruction: COYP"),
        ("FROM scratch\nCOPY nothing /\n", "nothing"),
        ("FROM scratch\nCOPY --from=no /a /b\n", "no"),
        ("", "cannot be empty|no build stage"),
    ],
    ids=str,
)
def test_wrong_dockerfile_error_has_its_mistake(maker: Maker, dockerfile: str, message: str) -> None:
    with pytest.raises(Failure, match=f"(?i){message}"):
        maker.create({"Dockerfile": dockerfile, "f": "x"}, skipPush=True)


def test_unknown_target_error_has_its_name(maker: Maker) -> None:
    with pytest.raises(Failure, match="nope"):
        maker.create({"Dockerfile": SCRATCH, "f": "x"}, build={"target": "nope"}, skipPush=True)


def test_unreadable_context_fails_before_build(maker: Maker) -> None:
    """A file is removed between Check and Create."""
    inputs = maker.inputs({"Dockerfile": SCRATCH, "f": "x"}, skipPush=True)
    (maker.folder / "Dockerfile").unlink()
    with pytest.raises(Failure, match="Dockerfile"):
        maker.plugin.create(inputs)


def test_wrong_password_is_one_line_without_it(maker: Maker, locked_registry: Registry) -> None:
    """The error is one line without the password. With the right one the next run only pushes."""
    wrong = f"wrong-{secrets.token_hex(4)}"
    login = {"server": locked_registry.address, "username": USER, "password": Secret(wrong)}
    name = f"{locked_registry.address}/parity/{maker.folder.name}:v1"
    files = {"Dockerfile": SCRATCH, "f": "x"}
    with pytest.raises(Failure, match="(?i)unauthorized|authentication|credentials") as failure:
        maker.create(files, imageName=name, registry=login)
    text = error_text(failure)
    assert wrong not in text
    if EMBEDDED:
        assert text.startswith(f"error pushing image {name}: ")
        assert (
            f"check registry.username and registry.password, or run `docker login` for {locked_registry.address}"
            in text
        )
        assert text.endswith("The image is built; the next run pushes it.")
    from tests.provider.conftest import PASSWORD

    outputs = maker.create(files, imageName=name, registry={**login, "password": Secret(PASSWORD)})
    assert outputs["repoDigest"].startswith(name.rpartition(":")[0])


@pytest.fixture
def brittle_registry(tmp_path: Path) -> Iterator[Registry]:
    with private_registry(tmp_path) as registry:
        yield registry


def test_registry_down_is_one_line_with_its_name(maker: Maker, brittle_registry: Registry) -> None:
    name = f"{brittle_registry.address}/parity/a:v1"
    files = {"Dockerfile": SCRATCH, "f": "x"}
    brittle_registry.stop()
    with pytest.raises(Failure, match="connection refused") as failure:
        maker.create(files, imageName=name)
    text = error_text(failure)
    if EMBEDDED:
        assert f"see that the registry {brittle_registry.address} is up" in text
    brittle_registry.start()
    assert maker.create(files, imageName=name)["repoDigest"].startswith(f"{brittle_registry.address}/parity/a@")


@pytest.mark.slow
def test_registry_failing_during_push_ends_build(maker: Maker, brittle_registry: Registry) -> None:
    """The engine retries for a while, then the push fails; the next run succeeds."""
    name = f"{brittle_registry.address}/parity/big:v1"
    (maker.folder / "big").write_bytes(os.urandom(200_000_000))
    inputs = maker.inputs({"Dockerfile": SCRATCH}, imageName=name)
    maker.plugin.engine.lines.clear()

    def stop() -> None:
        while not any("Pushing" in line and "MB" in line for line in maker.plugin.lines()):
            time.sleep(0.02)
        brittle_registry.stop()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Failure) as failure:
        maker.plugin.create(inputs)
    error_text(failure)
    brittle_registry.start()
    _, outputs = maker.plugin.create(inputs)
    assert outputs["repoDigest"].startswith(f"{brittle_registry.address}/parity/big@")


@pytest.mark.slow
def test_registry_without_space_is_one_line(maker: Maker, tmp_path: Path) -> None:
    """The line names the disk space of the registry, whose error is unspecific."""
    with private_registry(tmp_path, megabytes=1) as full:
        (maker.folder / "big").write_bytes(os.urandom(8_000_000))
        with pytest.raises(Failure) as failure:
            maker.create({"Dockerfile": SCRATCH}, imageName=f"{full.address}/parity/big:v1")
    text = error_text(failure)
    if EMBEDDED:
        assert "disk space" in text


@pytest.mark.skipif(not EMBEDDED, reason="the official one waits for ever")
def test_build_that_says_nothing_is_ended_in_time(
    program: Path, folder: Path, docker_host: str, shell: Path, repository: str, marker: str
) -> None:
    """The error names the step, and the engine ends the build."""
    with started(program, environment={"SLIPWAY_SILENT_SECONDS": "5"}) as plugin:
        plugin.configure(host=docker_host)
        maker = Maker(plugin, docker.DockerClient(base_url=docker_host), folder, repository)
        begun = time.monotonic()
        with pytest.raises(Failure) as failure:
            plugin.create(sleeper(maker, shell, marker))
    assert 5 <= time.monotonic() - begun < 30
    step, silence = (
        re.escape("it did not end step '[2/2] RUN "),
        re.escape(f"{docker_host}: the Docker daemon said nothing"),
    )
    assert re.search(rf"^error building image .*: {step}.*': {silence} for 5 s", error_text(failure))
    assert ended(marker, 30)


def test_daemon_ending_during_build_is_one_line(
    program: Path, folder: Path, docker_host: str, shell: Path, repository: str
) -> None:
    with Relay(docker_host) as relay, started(program) as plugin:
        plugin.configure(host=relay.host)
        maker = Maker(plugin, docker.DockerClient(base_url=docker_host), folder, repository)
        inputs = maker.inputs(with_shell(maker, shell, f"RUN echo {repository}; echo started; sleep 60"), skipPush=True)
        with ThreadPoolExecutor(1) as pool:
            build = pool.submit(plugin.create, inputs)
            wait_for(plugin, "started")
            relay.cut()
            with pytest.raises(Failure) as failure:
                build.result(timeout=30)
    text = error_text(failure)
    if EMBEDDED:
        assert "Docker daemon" in text


def wait_for(plugin: Plugin, text: str, seconds: float = 60) -> None:
    """Wait until a line of the plugin's output has a text."""
    deadline = time.monotonic() + seconds
    while not any(text in line for line in plugin.lines()):
        assert time.monotonic() < deadline, f"{text!r} is not in the output: {plugin.lines()}"
        time.sleep(0.05)


def processes(marker: str) -> list[int]:
    """Return the ids of processes on this machine with a text among their arguments: those of a build step."""
    ids = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if marker.encode() in arguments.read_bytes():
                ids.append(int(arguments.parent.name))
    return ids


def wait_until(marker: str, seconds: float = 30) -> None:
    """Wait until a build step sleeps for a marked time."""
    deadline = time.monotonic() + seconds
    while not processes(marker):
        assert time.monotonic() < deadline, "the build did not start"
        time.sleep(0.05)


def ended(marker: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes(marker)


@pytest.fixture
def marker() -> str:
    """A unique number of seconds to sleep."""
    return f"60.{secrets.randbelow(10**9):09d}"


def sleeper(maker: Maker, shell: Path, marker: str) -> dict[str, Any]:
    files = with_shell(maker, shell, f"RUN sleep {marker}")
    return maker.inputs(files, skipPush=True)


def test_cancel_ends_the_build(
    program: Path, folder: Path, docker_host: str, shell: Path, repository: str, marker: str
) -> None:
    """The engine's build ends too. The official provider ignores Cancel, and builds until it is killed."""
    with started(program) as plugin, ThreadPoolExecutor(1) as pool:
        plugin.configure(host=docker_host)
        maker = Maker(plugin, docker.DockerClient(base_url=docker_host), folder, repository)
        build = pool.submit(plugin.create, sleeper(maker, shell, marker))
        wait_until(marker)
        plugin.call("Cancel", empty_pb2.Empty())
        if EMBEDDED:
            with pytest.raises(Failure, match=f"build of {maker.name}:v1 cancelled"):
                build.result(timeout=5)
            assert ended(marker, 10)
            maker.create({"Dockerfile": SCRATCH}, skipPush=True)
        else:
            assert not ended(marker, 2)
            plugin.process.kill()
            with pytest.raises(Failure):
                build.result(timeout=10)
            assert ended(marker, 10)


def test_killed_plugin_ends_the_build(
    program: Path, folder: Path, docker_host: str, shell: Path, repository: str, marker: str
) -> None:
    with started(program) as plugin, ThreadPoolExecutor(1) as pool:
        plugin.configure(host=docker_host)
        maker = Maker(plugin, docker.DockerClient(base_url=docker_host), folder, repository)
        build = pool.submit(plugin.create, sleeper(maker, shell, marker))
        wait_until(marker)
        plugin.process.kill()
        with pytest.raises(Failure):
            build.result(timeout=10)
        assert ended(marker, 10)


def test_killed_step_error_has_exit_code_137(maker: Maker, shell: Path, marker: str) -> None:
    """As the kernel does when memory runs out."""
    with ThreadPoolExecutor(1) as pool:
        build = pool.submit(maker.plugin.create, sleeper(maker, shell, marker))
        wait_until(marker)
        for process in processes(marker):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(Failure, match="code: 137"):
            build.result(timeout=30)


def test_builds_at_once_have_different_digests(
    plugin: Plugin, engine: docker.DockerClient, program: Path, repository: str
) -> None:
    def digest_of(number: int) -> str:
        folder = write(program / f"many{number}", {"Dockerfile": SCRATCH, "f": f"{number}"})
        build = {"context": folder.name, "platform": PLATFORM}
        inputs = plugin.check({"imageName": f"{repository}-{number}:v1", "build": build})
        return str(plugin.create(inputs)[1]["repoDigest"])

    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(digest_of, range(8)))
    assert len({digest.partition("@")[2] for digest in digests}) == 8
    for number in range(8):
        engine.images.remove(f"{repository}-{number}:v1")
