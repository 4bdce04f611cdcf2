"""What a runner on EC2 does when it starts: cloud-init's own checker, and the script itself in a container.

In the container all is real but what an EC2 machine with GPUs alone has: those programs are stand-ins of a few lines, which
note how they are called.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.runners.ec2.user_data import builder_user_data, user_data
from stacks import flavors
from stacks.config.ec2 import Ec2BuildConfig, Ec2RunnersConfig
from stacks.config.stack_file import ROOT
from tests.images.engine import base_image, client, docker, unique
from tests.unit.runners.test_ec2 import RUNNERS

pytestmark = pytest.mark.slow  # apt, and several containers

DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends cloud-init python3 curl
"""

CONFIG = "ZW5jb2RlZA=="
STUBS = {
    "aws": 'case "$2" in delete-item) exit;; esac; if [ ! -e /log/refused ]; then touch /log/refused; echo Denied >&2; exit 254; fi; '
    f"[ -e /log/read ] && echo {CONFIG} || {{ touch /log/read; echo None; }}",
    "curl": 'case "$*" in *latest/api/token*) echo token;; *instance-id*) echo i-0123456789abcdef0;; '
    '*) exec /usr/bin/curl "$@";; esac',
    "docker": "case $1 in version) echo 20.10.24;; *) echo /var/lib/docker;; esac",
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
EBS = "nvme0n1 Amazon Elastic Block Store\n"


def config() -> Ec2RunnersConfig:
    runners = flavors.load({"flavor": "runners", "runners": RUNNERS}, "stack x").runners
    assert isinstance(runners, Ec2RunnersConfig)
    return runners


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
    output: str
    calls: list[str]
    state: dict[str, Any]


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
        (self.stubs / "disks").write_text(EBS + NVME.format(1))
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

    def start(self, *, gpus: int = 1, efa: int = 0) -> Boot:
        """Run the script as cloud-init runs it."""
        document = yaml.safe_load(user_data(config(), "linux/amd64", name="slipway-x", gpus=gpus, efa=efa))
        files = {file["path"]: file for file in document["write_files"]}
        local = {"RUNNER_URL": "file:///stubs/runner.tar.gz", "RUNNER_SHA256": self.checksum, **self.environment}
        environment = files["/etc/slipway/runner.env"]["content"] + "".join(f"{k}={v}\n" for k, v in local.items())
        (self.etc / "runner.env").write_text(environment)
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
            "PATH=/stubs:$PATH bash /etc/slipway/setup >/log/output 2>&1; echo $? >/log/code; "
            f"python3 -c {shlex.quote(look)} >/log/state"
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
            (self.log / "output").read_text(),
            calls.read_text().splitlines() if calls.exists() else [],
            json.loads((self.log / "state").read_text()),
        )


@pytest.fixture
def machine(tmp_path: Path, image: str) -> Machine:
    """A machine with a GPU and a local disk."""
    return Machine(tmp_path, image)


BUILD = Ec2BuildConfig.model_validate({"instanceType": "c7i.4xlarge", "cache": 500, "idle": 15})
VOLUME = "vol-0123456789abcdef0"
LIMIT = 16 * 1024
"""Maximal bytes of user data before encoding (EC2 user guide, "Run commands when you launch an EC2 instance")."""


@pytest.mark.parametrize(
    "text",
    [
        *(user_data(config(), "linux/arm64", name="slipway-" + "x" * 36, gpus=8, efa=efa) for efa in (0, 32)),
        builder_user_data(BUILD, VOLUME),
    ],
    ids=["runner", "runner with EFA", "builder"],
)
def test_user_data_is_valid_for_cloud_init(image: str, tmp_path: Path, text: str) -> None:
    assert len(text.encode()) < LIMIT
    (tmp_path / "good").write_text(text)
    (tmp_path / "bad").write_text(text.replace("permissions: '0755'", "permissions: [755]"))
    check = f"--volume={tmp_path}:/given:ro", image, "cloud-init", "schema", "--config-file"
    assert "Valid cloud-config" in docker("run", "--rm", *check, "/given/good").stdout
    done = docker("run", "--rm", *check, "/given/bad", check=False)
    assert done.returncode != 0, done.stdout


def test_boot_ends_with_a_runner_of_one_job(machine: Machine) -> None:
    machine.daemon = '{"log-driver": "json-file", "features": {"buildkit": true}}'
    boot = machine.start()
    assert boot.code == 0, boot.output
    assert boot.state == {
        "daemon": {
            "log-driver": "json-file",
            "features": {"buildkit": True, "cdi": True, "containerd-snapshotter": False},
            "data-root": "/mnt/fast/docker",
        },
        "env": f"ACTIONS_RUNNER_INPUT_JITCONFIG={CONFIG}\n",
        "mode": "0o100600",
        "owner": "runner",
    }
    assert boot.calls[-1] == "systemctl start slipway-runner"
    assert "warning: Docker 20.10.24 pulls no layers of zstd" in boot.output
    reads = [call for call in boot.calls if call.startswith("aws")]
    assert len(reads) == 4  # refused, not there yet, there, and deleted
    item = (
        '--region eu-west-1 --table-name slipway-x-configs --key {"machine": {"S": '
        '"arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0"}}'
    )
    assert all(each.startswith(f"aws dynamodb get-item {item} --consistent-read") for each in reads[:3])
    assert reads[3] == f"aws dynamodb delete-item {item}"
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" in boot.calls
    assert [call for call in boot.calls if call.startswith("mkfs")] == ["mkfs.ext4 -q -F -E nodiscard /dev/nvme1n1"]
    assert CONFIG not in boot.output


def test_boot_joins_disks_or_keeps_docker_on_the_root(machine: Machine) -> None:
    (machine.stubs / "disks").write_text(EBS + "".join(NVME.format(number) for number in (1, 2, 3)))
    boot = machine.start()
    raid = "mdadm --create /dev/md0 --level=0 --raid-devices=3 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1"
    assert raid in boot.calls
    assert "mkfs.ext4 -q -F -E nodiscard /dev/md0" in boot.calls
    (machine.stubs / "disks").write_text(EBS)
    (machine.log / "calls").unlink()
    boot = machine.start()
    assert "data-root" not in boot.state["daemon"]
    assert not [call for call in boot.calls if call.startswith(("mkfs", "mdadm"))]


def test_boot_uses_disks_that_are_already_mounted(machine: Machine) -> None:
    (machine.stubs / "mountpoint").write_text("#!/bin/sh\nexit 0\n")
    boot = machine.start()
    assert boot.state["daemon"]["data-root"] == "/opt/dlami/nvme/docker"
    assert not [call for call in boot.calls if call.startswith("mkfs")]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("checksum", "file:///stubs/runner.tar.gz is not what it should be"),
        ("gpus", "1 GPUs answer, of the 8 asked for"),
        ("efa", "1 EFA interfaces answer, of the 4 asked for"),
        ("docker", "Docker does not answer"),
        (
            "config",
            "instance/i-0123456789abcdef0 in slipway-x-configs: AccessDenied",
        ),
    ],
)
def test_boot_mistake_is_reported_and_starts_no_runner(machine: Machine, fault: str, message: str) -> None:
    values: dict[str, int] = {}
    match fault:
        case "checksum":
            machine.environment["RUNNER_SHA256"] = "0" * 64
        case "gpus":
            values["gpus"] = 8
        case "efa":
            values["efa"] = 4
            info = machine.stubs / "fi_info"
            info.write_text("#!/bin/sh\necho 'provider: efa'\necho '    domain: rdmap0-rdm'\n")
            info.chmod(0o755)
        case "docker":
            (machine.stubs / "docker").write_text("#!/bin/sh\nexit 1\n")
        case "config":
            (machine.stubs / "aws").write_text("#!/bin/sh\necho AccessDenied >&2\nexit 254\n")
    boot = machine.start(**values)
    assert boot.code == 1
    assert "slipway: error: " in boot.output
    assert message in boot.output
    assert "systemctl start slipway-runner" not in boot.calls


BUILDER_STUBS = {
    "wipefs": "cat /stubs/on-the-volume; exit $(cat /stubs/code)",
    "mkfs.ext4": "",
    "mount": "",
    "resize2fs": "",
    "mountpoint": "exit 1",
    "sleep": "",
    "docker": "cat /stubs/root",
    "ss": "cat /stubs/connected",
    "systemctl": 'case "$*" in "is-failed --quiet slipway-builder") exit $(cat /stubs/failed);; '
    '"is-active --quiet docker") exit $(cat /stubs/inactive);; esac',
}
"""What the builder's scripts call; each notes how, but systemctl and docker have answers too."""


class Builder:
    """The machine that builds images, as far as a container can be one."""

    def __init__(self, root: Path, image: str) -> None:
        self.image, self.stubs, self.log = image, root / "stubs", root / "log"
        self.device = f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{VOLUME.replace('-', '')}"
        for folder in (self.stubs, self.log):
            folder.mkdir()
        for name, does in BUILDER_STUBS.items():
            (self.stubs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>/log/calls\n{does}\n')
            (self.stubs / name).chmod(0o755)
        self.set_outputs(
            on_the_volume="ext4", code="0", root="/mnt/layers/docker", connected="", failed="1", inactive="0"
        )
        for file in yaml.safe_load(builder_user_data(BUILD, VOLUME))["write_files"]:
            (self.stubs / Path(file["path"]).name).write_text(file["content"])

    def set_outputs(self, **values: str) -> None:
        """Set what the stand-ins say."""
        for name, value in values.items():
            (self.stubs / name.replace("_", "-")).write_text(f"{value}\n" if value else "")

    def run(self, script: str, before: str = ":", after: str = ":") -> Boot:
        """Run one of the machine's scripts; ``before`` and ``after`` are shell."""
        calls = self.log / "calls"
        calls.unlink(missing_ok=True)
        text = (
            "mkdir -p /etc/slipway /dev/disk/by-id /usr/share/ec2-instance-connect; cp /stubs/builder.env /etc/slipway/; "
            "cp /bin/true /usr/share/ec2-instance-connect/eic_run_authorized_keys; "
            f"mknod {self.device} b 7 200; {before}; "
            f"PATH=/stubs:$PATH bash /stubs/{script} >/log/output 2>&1; echo $? >/log/code; {after} >/log/state"
        )
        volumes = [f"--volume={self.stubs}:/stubs:ro", f"--volume={self.log}:/log"]
        docker("run", "--rm", "--network=none", *volumes, self.image, "bash", "-c", text)
        state = (self.log / "state").read_text()
        return Boot(
            int((self.log / "code").read_text()),
            (self.log / "output").read_text(),
            calls.read_text().splitlines() if calls.exists() else [],
            json.loads(state) if state else {},
        )


@pytest.fixture
def builder(tmp_path: Path, image: str) -> Builder:
    """A builder whose volume has been used."""
    return Builder(tmp_path, image)


def test_builder_docker_keeps_layers_on_the_volume(builder: Builder) -> None:
    daemon = '{"log-driver": "json-file", "features": {"buildkit": true}}'
    boot = builder.run(
        "slipway-builder",
        f"mkdir -p /etc/docker; echo {shlex.quote(daemon)} >/etc/docker/daemon.json",
        "cat /etc/docker/daemon.json",
    )
    assert boot.code == 0, boot.output
    assert boot.state == {
        "log-driver": "json-file",
        "data-root": "/mnt/layers/docker",
        "features": {"buildkit": True, "containerd-snapshotter": False},
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "300GB"}},
    }
    assert f"mount -o noatime {builder.device} /mnt/layers" in boot.calls
    assert f"resize2fs {builder.device}" in boot.calls
    assert not [call for call in boot.calls if call.startswith("mkfs")]


def test_builder_formats_only_an_empty_volume(builder: Builder) -> None:
    builder.set_outputs(on_the_volume="")
    boot = builder.run("slipway-builder")
    assert boot.code == 0, boot.output
    assert boot.calls.index(f"mkfs.ext4 -q -E nodiscard -L slipway {builder.device}") < boot.calls.index(
        f"mount -o noatime {builder.device} /mnt/layers"
    )
    for holds, code in (("xfs", "0"), ("PMBR", "0"), ("ext4\nPMBR", "0"), ("", "1")):  # the last is an error
        builder.set_outputs(on_the_volume=holds, code=code)
        boot = builder.run("slipway-builder")
        assert boot.code == 1
        words = holds.replace("\n", " ")
        assert not holds or f"error: {VOLUME} holds {words}, and not ext4: it is left as it is" in boot.output
        assert not [call for call in boot.calls if call.startswith(("mkfs", "mount "))]


def test_builder_without_its_volume_fails_after_a_wait(builder: Builder) -> None:
    boot = builder.run("slipway-builder", f"rm {builder.device}")
    assert boot.code == 1
    assert boot.output.splitlines()[-1].endswith(f"error: the volume {VOLUME} does not appear")
    assert boot.calls.count("sleep 4") == 150


def test_builder_without_connections_stops(builder: Builder) -> None:
    poweroff = "systemctl poweroff"
    old = "touch --date='16 minutes ago' /run/slipway-seen"
    assert poweroff not in builder.run("slipway-idle").calls  # it has just started
    assert poweroff not in builder.run("slipway-idle", "touch --date='14 minutes ago' /run/slipway-seen").calls
    assert poweroff in builder.run("slipway-idle", old).calls
    builder.set_outputs(connected="0 0 10.0.0.5:22 10.0.0.9:50000")
    boot = builder.run("slipway-idle", old, "find /run/slipway-seen -mmin -1 -printf '{\"seen\": 1}'")
    assert poweroff not in boot.calls
    assert boot.state == {"seen": 1}
    (builder.stubs / "ss").write_text("#!/bin/sh\nexit 1\n")
    assert poweroff not in builder.run("slipway-idle", old).calls  # who is connected is not known


@pytest.mark.parametrize(
    ("root", "failed", "inactive", "code"),
    [
        ("/mnt/layers/docker", "1", "0", 0),
        ("/mnt/layers/docker", "1", "3", 1),  # it makes room
        ("/var/lib/docker", "1", "0", 1),
        ("", "0", "3", 3),
    ],
)
def test_builder_is_ready_with_docker_volume_and_room(
    builder: Builder, root: str, failed: str, inactive: str, code: int
) -> None:
    builder.set_outputs(root=root, failed=failed, inactive=inactive)
    boot = builder.run(
        "slipway-ready", "echo first >/var/log/slipway-builder.log; echo why >>/var/log/slipway-builder.log"
    )
    assert boot.code == code
    assert boot.output == ("why\n" if code == 3 else "")


_TEST_IMAGES = """#!/bin/sh
# Of this test alone: the engine has other images too.
case "$*" in
"image ls --quiet --no-trunc") exec {docker} "$@" --filter "reference={prefix}/*" ;;
"image prune"*) ;;
*) exec {docker} "$@" ;;
esac
"""


@pytest.mark.parametrize(
    ("used", "seconds", "remaining"),
    [
        ("79", "0", ["a:1", "a:2", "b:1"]),
        ("80", "0", ["a:1", "b:1"]),
        ("80", "86400", ["a:1", "a:2", "b:1"]),  # jobs may be at work
    ],
)
def test_builder_volume_nearly_full_keeps_newest_images(
    tmp_path: Path, used: str, seconds: str, remaining: list[str]
) -> None:
    """On a real engine, as the script reads when it tagged what: a stack that publishes nothing has its parents there."""
    prefix = f"127.0.0.1:1/{unique('room').replace(':', '-')}"  # a port, as a registry may have one
    stubs = {
        "docker": _TEST_IMAGES.format(docker=client(), prefix=prefix),
        "df": f"#!/bin/sh\necho Use%\necho ' {used}%'\n",
    }
    for name, text in stubs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for number, name in enumerate(("a:1", "a:2", "b:1")):
        (tmp_path / "Dockerfile").write_text(f"FROM scratch\nLABEL number={number}\n")
        docker("build", "--quiet", "--tag", f"{prefix}/{name}", tmp_path)
    docker("tag", f"{prefix}/a:1", f"{prefix}/a:1")  # as a build does from its cache: it is the newest again
    try:
        script = ROOT / "components/runners/ec2/boot/room"
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", str(script), seconds], env=environment, check=True, capture_output=True, text=True)
        names = docker(
            "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference={prefix}/*"
        ).stdout
        assert sorted(names.split()) == [f"{prefix}/{name}" for name in remaining], done.stdout
    finally:
        docker("rmi", "--force", *(f"{prefix}/{name}" for name in ("a:1", "a:2", "b:1")), check=False)
