"""What a runner on EC2 does when it starts: cloud-init's own checker, and the script itself in a container.

In the container all is real but what an EC2 machine with GPUs alone has: those programs are stand-ins of a few lines, which
note how they are called.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.runners.ec2.user_data import LIMIT, user_data
from stacks import flavors
from stacks.ec2 import Ec2Runners
from tests.images.engine import base_image, docker, unique
from tests.unit.test_ec2 import RUNNERS

pytestmark = pytest.mark.slow  # apt, and several containers

DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends cloud-init python3 curl
"""

CONFIG = "ZW5jb2RlZA=="
STUBS = {
    "aws": f"[ -e /log/asked ] && echo {CONFIG} || {{ touch /log/asked; echo 'ParameterNotFound' >&2; exit 254; }}",
    "curl": 'case "$*" in *latest/api/token*) echo token;; *instance-id*) echo i-0123456789abcdef0;; '
    '*) exec /usr/bin/curl "$@";; esac',
    "docker": "echo /var/lib/docker",
    "lsblk": "cat /stubs/disks",
    "mdadm": "",
    "mkfs.ext4": "",
    "mount": "",
    "mountpoint": "exit 1",
    "nvidia-ctk": "",
    "nvidia-smi": "cat /stubs/gpus",
    "sleep": "",
    "systemctl": "",
}
NVME = "nvme{}n1 Amazon EC2 NVMe Instance Storage\n"
ROOT = "nvme0n1 Amazon Elastic Block Store\n"


def config(**values: Any) -> Ec2Runners:
    made = flavors.load({"flavor": "runners", "runners": {**RUNNERS, "gpus": 1, **values}}, "stack x").runners
    assert isinstance(made, Ec2Runners)
    return made


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A machine image, as far as a container can be one."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    tag = unique("machine")
    docker("build", "--network=host", "--build-arg", f"BASE_IMAGE={base_image()}", "--tag", tag, folder)
    yield tag
    docker("rmi", "--force", tag)


@dataclass
class Boot:
    """A machine that has started: how the script ended, what it said, and what it left."""

    code: int
    said: str
    calls: list[str]
    found: dict[str, Any]


class Machine:
    """A machine that is about to start; its parts are changed before."""

    def __init__(self, root: Path, image: str) -> None:
        self.image = image
        self.stubs, self.log, self.etc = root / "stubs", root / "log", root / "etc"
        for folder in (self.stubs, self.log, self.etc):
            folder.mkdir()
        self.environment: dict[str, Any] = {}
        self.daemon = ""
        (self.stubs / "gpus").write_text("GPU 0: NVIDIA A10G\n")
        (self.stubs / "disks").write_text(ROOT + NVME.format(1))
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as packed:
            entry = tarfile.TarInfo("run.sh")
            entry.mode = 0o755
            packed.addfile(entry, io.BytesIO())
        (self.stubs / "runner.tar.gz").write_bytes(archive.getvalue())
        self.checksum = hashlib.sha256(archive.getvalue()).hexdigest()
        for name, does in STUBS.items():
            stub = self.stubs / name
            stub.write_text(f'#!/bin/sh\necho "{name} $*" >>/log/calls\n{does}\n')
            stub.chmod(0o755)

    def start(self, **values: Any) -> Boot:
        """Run the script as cloud-init runs it."""
        efa = values.pop("efa_interfaces", 0)
        document = yaml.safe_load(user_data(config(**values), "linux/amd64", name="slipway-x", efa=efa))
        files = {file["path"]: file for file in document["write_files"]}
        local = {"RUNNER_URL": "file:///stubs/runner.tar.gz", "RUNNER_SHA256": self.checksum, **self.environment}
        told = files["/etc/slipway/runner.env"]["content"] + "".join(f"{k}={v}\n" for k, v in local.items())
        (self.etc / "runner.env").write_text(told)
        (self.etc / "setup").write_text(files["/usr/local/sbin/slipway-setup"]["content"])
        look = (
            "import json,os,pathlib as p; d=p.Path('/etc/docker/daemon.json'); e=p.Path('/run/slipway-runner.env'); "
            "r=p.Path('/opt/runner/run.sh'); print(json.dumps({'daemon': json.loads(d.read_text()) if d.exists() else None,"
            "'env': e.read_text() if e.exists() else None, 'mode': oct(e.stat().st_mode) if e.exists() else None,"
            "'owner': r.owner() if r.exists() else None}))"
        )
        script = (
            "groupadd docker; mkdir -p /etc/docker /opt/amazon/efa/bin; "
            f"[ -z {shlex.quote(self.daemon)} ] || printf %s {shlex.quote(self.daemon)} >/etc/docker/daemon.json; "
            "cp /stubs/fi_info /opt/amazon/efa/bin/ 2>/dev/null; "
            "PATH=/stubs:$PATH bash /etc/slipway/setup >/log/said 2>&1; echo $? >/log/code; "
            f"python3 -c {shlex.quote(look)} >/log/found"
        )
        volumes = [
            f"--volume={self.stubs}:/stubs:ro",
            f"--volume={self.log}:/log",
            f"--volume={self.etc}:/etc/slipway:ro",
        ]
        docker("run", "--rm", "--network=none", *volumes, self.image, "bash", "-c", script)
        calls = self.log / "calls"
        return Boot(
            int((self.log / "code").read_text()),
            (self.log / "said").read_text(),
            calls.read_text().splitlines() if calls.exists() else [],
            json.loads((self.log / "found").read_text()),
        )


@pytest.fixture
def machine(tmp_path: Path, image: str) -> Machine:
    """A machine with a GPU and a local disk."""
    return Machine(tmp_path, image)


@pytest.mark.parametrize("efa", [0, 32])
def test_cloud_init_takes_it(image: str, tmp_path: Path, efa: int) -> None:
    text = user_data(config(), "linux/arm64", name="slipway-" + "x" * 50, efa=efa)
    assert len(text.encode()) < LIMIT
    (tmp_path / "good").write_text(text)
    (tmp_path / "bad").write_text(text.replace("permissions: '0755'", "permissions: [755]"))
    check = f"--volume={tmp_path}:/given:ro", image, "cloud-init", "schema", "--config-file"
    assert "Valid cloud-config" in docker("run", "--rm", *check, "/given/good").stdout
    done = docker("run", "--rm", *check, "/given/bad", check=False)
    assert done.returncode != 0, done.stdout


def test_it_ends_with_a_runner_that_waits_for_one_job(machine: Machine) -> None:
    machine.daemon = '{"log-driver": "json-file", "features": {"buildkit": true}}'
    boot = machine.start()
    assert boot.code == 0, boot.said
    assert boot.found == {
        "daemon": {
            "log-driver": "json-file",
            "features": {"buildkit": True, "cdi": True},
            "data-root": "/mnt/fast/docker",
        },
        "env": f"ACTIONS_RUNNER_INPUT_JITCONFIG={CONFIG}\n",
        "mode": "0o100600",
        "owner": "runner",
    }
    assert boot.calls[-1] == "systemctl start slipway-runner"
    asked = [call for call in boot.calls if call.startswith("aws")]
    assert len(asked) == 2  # it was not there yet
    assert "--name /slipway-x/runners/i-0123456789abcdef0 --with-decryption" in asked[0]
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" in boot.calls
    assert [call for call in boot.calls if call.startswith("mkfs")] == ["mkfs.ext4 -q -F -E nodiscard /dev/nvme1n1"]
    assert CONFIG not in boot.said


def test_several_disks_are_one_and_without_any_docker_stays_on_the_root(machine: Machine) -> None:
    (machine.stubs / "disks").write_text(ROOT + "".join(NVME.format(number) for number in (1, 2, 3)))
    boot = machine.start()
    raid = "mdadm --create /dev/md0 --level=0 --raid-devices=3 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1"
    assert raid in boot.calls
    assert "mkfs.ext4 -q -F -E nodiscard /dev/md0" in boot.calls
    (machine.stubs / "disks").write_text(ROOT)
    (machine.log / "calls").unlink()
    boot = machine.start()
    assert "data-root" not in boot.found["daemon"]
    assert not [call for call in boot.calls if call.startswith(("mkfs", "mdadm"))]


def test_disks_that_the_image_has_mounted_itself_are_taken_as_they_are(machine: Machine) -> None:
    (machine.stubs / "mountpoint").write_text("#!/bin/sh\nexit 0\n")
    boot = machine.start()
    assert boot.found["daemon"]["data-root"] == "/opt/dlami/nvme/docker"
    assert not [call for call in boot.calls if call.startswith("mkfs")]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("checksum", "file:///stubs/runner.tar.gz is not what it should be"),
        ("gpus", "1 GPUs answer, of the 8 asked for"),
        ("efa", "1 EFA interfaces answer, of the 4 asked for"),
        ("docker", "Docker does not answer"),
        ("config", "no configuration at /slipway-x/runners/i-0123456789abcdef0: AccessDenied"),
    ],
)
def test_what_is_wrong_is_said_and_no_runner_starts(machine: Machine, fault: str, said: str) -> None:
    values: dict[str, Any] = {}
    match fault:
        case "checksum":
            machine.environment["RUNNER_SHA256"] = "0" * 64
        case "gpus":
            values["gpus"] = 8
        case "efa":
            values["efa_interfaces"] = 4
            info = machine.stubs / "fi_info"
            info.write_text("#!/bin/sh\necho 'provider: efa'\necho '    domain: rdmap0-rdm'\n")
            info.chmod(0o755)
        case "docker":
            (machine.stubs / "docker").write_text("#!/bin/sh\nexit 1\n")
        case "config":
            (machine.stubs / "aws").write_text("#!/bin/sh\necho AccessDenied >&2\nexit 254\n")
    boot = machine.start(**values)
    assert boot.code == 1
    assert f"slipway: error: {said}" in boot.said
    assert "systemctl start slipway-runner" not in boot.calls
