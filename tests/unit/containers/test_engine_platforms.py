"""The platforms that an engine runs, by a stand-in of the docker client; and the programs that it is tried with."""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

from containers.engine import engine_platforms
from containers.engine.engine_platforms import check_runnable, runnable_platforms
from containers.errors import SlipwayError
from tests.helpers.refusals import refusal_line

CLIENT = """#!/bin/sh
echo "$*" >> {calls}
[ "$1" = --host ] && shift 2
case $1 in
  version) echo linux/amd64 ;;
  load) cat > {image}; echo 'Loaded image ID: sha256:0123' ;;
  run) {run} ;;
esac
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with a docker client of an amd64 machine that runs every program."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    write(tmp_path, "true")
    return tmp_path


def write(folder: Path, run: str) -> None:
    text = CLIENT.format(calls=folder / "calls", image=folder / "image.tar", run=run)
    (folder / "docker").write_text(text)
    (folder / "docker").chmod(0o755)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_platforms_of_an_emulating_engine_are_both(client: Path) -> None:
    assert runnable_platforms() == {"linux/amd64": "native", "linux/arm64": "emulated"}
    assert calls(client)[1:] == [
        "load --quiet",
        "run --rm --platform linux/arm64 --network none sha256:0123",
        "image rm --force sha256:0123",
    ]


def test_platform_of_the_engine_itself_runs_nothing(client: Path) -> None:
    assert check_runnable(["linux/amd64"]) == {"linux/amd64": "native"}
    assert [line.split()[0] for line in calls(client)] == ["version"]


def test_host_is_named_in_each_command(client: Path) -> None:
    runnable_platforms("ssh://builder")
    assert {line.split()[:2][1] for line in calls(client)} == {"ssh://builder"}


@pytest.mark.parametrize(
    "words",
    [
        "exec /probe: exec format error",
        'docker: Error response from daemon: OCI runtime create failed: exec: "/probe": no such file or directory: unknown.',
    ],
)
def test_platform_that_the_kernel_cannot_run_is_refused(client: Path, words: str) -> None:
    write(client, f"echo '{words}' >&2; exit 1")
    assert runnable_platforms() == {"linux/amd64": "native"}
    assert calls(client)[-1] == "image rm --force sha256:0123"
    with pytest.raises(SlipwayError) as refusal:
        check_runnable(["linux/arm64"], "ssh://builder", key="slipway:engines")
    assert str(refusal.value) == (
        "slipway:engines: 'linux/arm64': the Docker engine at ssh://builder cannot run its programs; it runs "
        "linux/amd64: name an engine of that platform in slipway:engines, or let this one emulate it as "
        "docs/guides/emulation.md says"
    )


@pytest.mark.parametrize("unknown", ["linux/riscv64", "linux/arm64/v8", "windows/amd64"])
def test_platform_of_no_image_is_refused_untried(client: Path, unknown: str) -> None:
    assert runnable_platforms(among=[unknown]) == {}
    assert [line.split()[0] for line in calls(client)] == ["version"]


def test_engine_that_fails_otherwise_is_an_error(client: Path) -> None:
    write(client, "printf 'docker: no space left on device.\\n\\n' >&2; exit 125")
    with pytest.raises(
        SlipwayError, match=r"^the Docker engine: `docker run` failed: docker: no space left on device\.$"
    ):
        runnable_platforms()
    assert calls(client)[-1] == "image rm --force sha256:0123"


def test_engine_behind_ssh_fails_with_what_ssh_said(client: Path) -> None:
    """The docker client puts a long line before it, which would leave no room for it."""
    from_ssh = f"ssh: Could not resolve hostname {'builder.' * 12}example: Name or service not known"
    wrapped = (
        'error during connect: Get "http://docker.example.com/v1.50/version": command [ssh -o ConnectTimeout=30 -T -- '
        "builder docker system dial-stdio] has exited with exit status 255, make sure the URL is valid, and Docker "
        f"18.09 or later is installed on the remote host: stderr={from_ssh}"
    )
    (client / "docker").write_text(f"#!/bin/sh\necho '{wrapped}' >&2\nexit 1\n")
    assert refusal_line(runnable_platforms, "ssh://builder") == (
        f"the Docker engine at ssh://builder: `docker version` failed: {from_ssh}"
    )


def test_machine_without_a_client_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlipwayError, match="^no docker client on PATH"):
        runnable_platforms()


def test_engine_that_does_not_answer_is_an_error(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_platforms, "_SECONDS", 0.2)
    (client / "docker").write_text("#!/bin/sh\nexec sleep 5\n")
    with pytest.raises(SlipwayError, match=r"^the Docker engine at ssh://x did not answer `docker version` in 0\.2 s$"):
        runnable_platforms("ssh://x")


def program(client: Path) -> bytes:
    """Return the program in the image that the client was given."""
    with tarfile.open(client / "image.tar") as image:
        (manifest,) = json.load(image.extractfile("manifest.json") or io.BytesIO())
        config = json.load(image.extractfile(manifest["Config"]) or io.BytesIO())
        assert (config["os"], config["architecture"]) == ("linux", "arm64")
        layer = image.extractfile(manifest["Layers"][0])
        assert layer
        with tarfile.open(fileobj=layer) as files:
            member = files.getmember(config["config"]["Entrypoint"][0].removeprefix("/"))
            assert member.mode == 0o755
            content = files.extractfile(member)
            assert content
            return content.read()


def test_image_has_a_program_of_its_platform(client: Path) -> None:
    runnable_platforms()
    content = program(client)
    assert len(content) == 132
    assert content[:5] == b"\x7fELF\x02"
    assert int.from_bytes(content[18:20], "little") == 183  # EM_AARCH64


def test_program_of_this_machine_ends_with_success(tmp_path: Path) -> None:
    own = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]
    file = tmp_path / "probe"
    file.write_bytes(engine_platforms.program(own))
    file.chmod(0o755)
    subprocess.run([file], check=True)
