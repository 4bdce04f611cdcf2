"""The machine that builds images: its life by the real engine and moto, and images built behind a real ssh server."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from components.runners.ec2 import iam_policies
from tests.aws.conftest import REGION
from tests.aws.runners import NAME, RUNNERS, RunnersProject, image
from tests.aws.test_ecr import UNCHANGED, operations
from tests.aws.test_runners import documented, rules
from tests.engine.project import Project
from tests.engine.test_checks import CHECK, DOCKERFILE, PASSING
from tests.engine.test_platforms import write_files
from tests.fakes.aws.ssh_builder import far_side
from tests.helpers.elf_writer import LOADER, elf
from tests.images.engine import base_image
from tests.provider.conftest import Registry
from tests.unit.runners import iam

AWAY: dict[str, Any] = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
"""No engine: this machine's own has no part in it."""
ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
"""This machine's engine."""
BUILDER = f"{NAME}-builder"
SECOND = f"{BUILDER}-arm64"
AMD64, ARM64 = PLATFORMS = ["linux/amd64", "linux/arm64"]


class BuilderProject(RunnersProject):
    """A project whose images are built on EC2."""

    def building(
        self, build: dict[str, Any] | None = None, runners: dict[str, Any] | None = None, **values: Any
    ) -> None:
        """Write the stack's YAML; what differs of the builder and of the runners, and ``values`` of the stack."""
        where = {"kind": "local", "address": os.environ["SLIPWAY_REGISTRY"], "path": self.path}
        whole = {**RUNNERS, **(runners or {}), "build": {"instanceType": "c7i.4xlarge", **(build or {})}}
        Project.configure(self, **{"registry": where, "runners": whole, "buildOn": "runners", **values})

    @property
    def alias(self) -> Path:
        """The folder of the builder's alias."""
        return self.root / ".slipway/builder" / BUILDER

    def machine(self, name: str = BUILDER) -> Any:
        """Return a builder, as EC2 has it."""
        filters = [
            {"Name": "tag:Name", "Values": [name]},
            {"Name": "instance-state-name", "Values": ["running", "stopped", "stopping", "pending"]},
        ]
        (reservation,) = self.api("ec2").describe_instances(Filters=filters)["Reservations"]
        return reservation["Instances"][0]

    def volumes(self, name: str = BUILDER) -> list[Any]:
        """Return a builder's volumes of layers, as EC2 has them: of the same tags, the root volumes are smaller."""
        filters = [{"Name": "tag:Name", "Values": [name]}]
        volumes: list[Any] = self.api("ec2").describe_volumes(Filters=filters)["Volumes"]
        return [volume for volume in volumes if volume["Size"] >= 300]


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory, moto: str, registry: Registry) -> BuilderProject:
    """A fresh project on an AWS that has nothing but a machine image."""
    requests.post(f"{moto}/moto-api/reset", timeout=30).raise_for_status()
    image(moto, "x86_64")
    # A short name: the path of a socket has at most 107 characters.
    project = BuilderProject(tmp_path_factory.mktemp("b") / "project", moto, registry)
    project.add_stack()
    project.building()
    return project


@pytest.fixture
def sessions(project: BuilderProject) -> Iterator[Path]:
    """The far side of both builders."""
    aliases = [project.alias, project.alias.with_name(SECOND)]
    with far_side(project.root.with_name("plugins"), aliases, ENGINE) as calls:
        yield calls


@pytest.mark.slow  # apt, and seven updates
def test_builder_life_builds_replaces_and_destroys(project: BuilderProject, sessions: Path) -> None:
    project.up(**AWAY)
    check_machine(project)
    first = project.outputs()
    assert first["images"]["link0"]["ref"].startswith(f"{os.environ['SLIPWAY_REGISTRY']}/{project.path}/link0@sha256:")
    machine, (volume,) = project.machine(), project.volumes()
    assert first["runners"]["builder"] == {
        "instance": machine["InstanceId"],
        "volume": volume["VolumeId"],
        "connect": f"ssh -F .slipway/builder/{BUILDER}/config slipway-builder",
    }
    assert machine["State"]["Name"] == "stopped"
    calls = sessions.read_text().splitlines()
    expected = f"ssm start-session --region {REGION} --target {machine['InstanceId']} "
    assert set(calls) == {f"{expected}--document-name AWS-StartSSHSession --parameters portNumber=22"}
    assert len(calls) == 2  # the first was too early; all else shares the second
    assert stat.S_IMODE((project.alias / "key").stat().st_mode) == 0o600
    output = project.exported() + project.pulumi("stack", "export", "-s", "t", "--show-secrets").stdout
    assert (project.alias / "key").read_text().splitlines()[2] not in output

    # Nothing to build: nobody wakes it.
    assert UNCHANGED.search(project.up(**AWAY).output)
    assert sessions.read_text().splitlines() == calls

    project.building(word="two")
    changes = operations(project.preview(**AWAY).output)
    assert changes["Awake builder-awake"] == changes["Asleep builder-asleep"] == "~"
    assert not any("Instance" in what for what in changes)
    project.up(**AWAY)
    assert project.machine()["State"]["Name"] == "stopped"
    assert project.outputs()["images"] != first["images"]
    assert len(sessions.read_text().splitlines()) == 3

    another_machine_keeps_the_volume(project)
    assert UNCHANGED.search(project.refresh(**AWAY).output)
    check_other_type_keeps_the_machine(project)
    check_missing_machine_is_replaced(project)
    # A machine image that is newer is for new runners; for another builder it has to be named.
    newer = image(project.moto, "x86_64")
    runners = {f"LaunchTemplate {NAME}": "~", f"Group {NAME}-spot": "~", f"Group {NAME}-on-demand": "~"}
    assert operations(project.preview(**AWAY).output) == runners
    project.building({"idle": 30, "cache": 600}, {"ami": newer}, word="three")
    assert operations(project.preview(**AWAY).output)[f"Instance {BUILDER}"] == "++"

    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert project.volumes() == []
    assert not project.api("iam").list_roles()["Roles"]
    connecting = {"ec2:StartInstances", "ec2:StopInstances", "ec2:DescribeInstances"}
    through = {"ec2-instance-connect:SendSSHPublicKey", "ssm:StartSession"}
    assert sorted((project.calls() | connecting | through) - documented()) == []


def another_machine_keeps_the_volume(project: BuilderProject) -> None:
    """Replace it, by what it is told at its start; the volume grows where it is."""
    machine, (volume,) = project.machine(), project.volumes()
    project.building({"idle": 30, "cache": 600}, word="two")
    changes = operations(project.preview(**AWAY).output)
    assert changes[f"Instance {BUILDER}"] == changes[f"VolumeAttachment {BUILDER}"] == "++"
    assert changes[f"Volume {BUILDER}"] == "~"
    assert not any("Image" in what for what in changes)
    project.up(**AWAY)
    other, (kept,) = project.machine(), project.volumes()
    assert other["InstanceId"] != machine["InstanceId"]
    assert kept["VolumeId"] == volume["VolumeId"]
    assert kept["Size"] == 600
    assert [attached["InstanceId"] for attached in kept["Attachments"]] == [other["InstanceId"]]
    assert other["State"]["Name"] == "stopped"


def check_other_type_keeps_the_machine(project: BuilderProject) -> None:
    """AWS changes the type of a stopped machine. The plugin starts it again, and nobody stops it before it is idle."""
    machine = project.machine()
    build = {"idle": 30, "cache": 600, "instanceType": "c7i.8xlarge"}
    project.building(build, word="two")
    assert operations(project.preview(**AWAY).output)[f"Instance {BUILDER}"] == "~"
    project.up(**AWAY)
    other = project.machine()
    assert (other["InstanceId"], other["InstanceType"]) == (machine["InstanceId"], "c7i.8xlarge")
    assert other["State"]["Name"] == "running"


def check_missing_machine_is_replaced(project: BuilderProject) -> None:
    """As the error says that the next build ends with; the volume stays."""
    gone, (volume,) = project.machine()["InstanceId"], project.volumes()
    project.api("ec2").terminate_instances(InstanceIds=[gone])
    project.building({"idle": 30, "cache": 600}, word="three")
    failed = project.up(check=False, **AWAY)
    assert failed.returncode != 0
    assert f"the builder {BUILDER} in {REGION}: there is none; `pulumi up --refresh` makes it anew" in failed.output
    project.pulumi("up", "-s", "t", "--yes", "--skip-preview", "--refresh", **AWAY)
    (kept,) = project.volumes()
    assert kept["VolumeId"] == volume["VolumeId"]
    assert [one["InstanceId"] for one in kept["Attachments"]] == [project.machine()["InstanceId"]] != [gone]


@pytest.mark.slow  # likewise
def test_builder_after_failed_image_is_reused_in_any_state(project: BuilderProject, sessions: Path) -> None:
    project.building(length=2)
    project.write("dockerfiles/link1/Dockerfile", 'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN ["/none"]\n')
    assert project.up(check=False, **AWAY).returncode != 0
    machine = project.machine()
    assert machine["State"]["Name"] == "running"  # until it stops itself
    project.api("ec2").stop_instances(InstanceIds=[machine["InstanceId"]])
    project.write("dockerfiles/link1/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY link1/file.txt /\n")
    changes = operations(project.preview(**AWAY).output)
    assert "ImageVariant link0" not in changes
    project.up(**AWAY)
    assert project.machine()["State"]["Name"] == "stopped"

    # Nobody may connect: one line, and what was there stays.
    sessions.with_name(f"{sessions.name}.broken").touch()
    project.building(length=2, word="two")
    subprocess.run(["ssh", "-F", project.alias / "config", "-O", "exit", "slipway-builder"], check=False)
    failed = project.up(check=False, **AWAY)
    assert failed.returncode != 0
    assert "the builder cannot be reached" in failed.output
    assert "AccessDeniedException" in failed.output


@pytest.mark.slow
@pytest.mark.usefixtures("sessions")
def test_unpushed_image_on_builder_is_inspected(project: BuilderProject) -> None:
    project.write("dockerfiles/link0/Dockerfile", f"{DOCKERFILE}COPY --chmod=755 link0/program /opt/program\n")
    project.write(CHECK, PASSING)
    (project.root / "dockerfiles/link0/program").write_bytes(elf(needed=["libgone.so.1"], interpreter=LOADER))
    keys: dict[str, Any] = {"base": base_image(), "publish": False}
    project.building(**keys)
    failed = project.up(check=False, **AWAY)
    assert failed.returncode != 0
    assert "/opt/program: missing libgone.so.1: not in the image" in failed.output
    assert "Traceback" not in failed.output
    row = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    project.building(**keys, inspection={"exceptions": [row]})
    project.up(**AWAY)
    assert project.machine()["State"]["Name"] == "stopped"
    assert UNCHANGED.search(project.up(**AWAY).output)

    # The gate alone wakes it too, for an image that is there.
    project.building(**keys, inspection={"gate": False})
    project.up(**AWAY)
    project.building(**keys, inspection={"exceptions": [row]})
    changes = operations(project.preview(**AWAY).output)
    assert "UnpushedImage link0-inspection" in changes
    project.up(**AWAY)
    assert project.machine()["State"]["Name"] == "stopped"


def check_machine(project: BuilderProject) -> None:
    machine, (volume,) = project.machine(), project.volumes()
    assert machine["InstanceType"] == "c7i.4xlarge"
    assert machine["EbsOptimized"] is True
    options = machine["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)
    (group,) = machine["SecurityGroups"]
    assert rules(project, group["GroupId"], egress=False) == []
    assert rules(project, group["GroupId"], egress=True) == [("-1", "0.0.0.0/0")]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (500, "gp3", True)
    assert (volume["Iops"], volume["Throughput"]) == (6000, 500)
    assert volume["AvailabilityZone"] == machine["Placement"]["AvailabilityZone"]
    assert [attached["InstanceId"] for attached in volume["Attachments"]] == [machine["InstanceId"]]
    role = project.api("iam").get_role(RoleName=BUILDER)["Role"]
    assert role["AssumeRolePolicyDocument"] == iam_policies.trust("ec2.amazonaws.com")
    assert not project.api("iam").list_attached_role_policies(RoleName=BUILDER)["AttachedPolicies"]
    assert project.api("iam").list_role_policies(RoleName=BUILDER)["PolicyNames"] == ["builder"]
    policy = project.api("iam").get_role_policy(RoleName=BUILDER, PolicyName="builder")["PolicyDocument"]
    assert iam.mistakes(policy, "builder") == []
    attached = [{"Name": "attachment.instance-id", "Values": [machine["InstanceId"]]}]
    for each in project.api("ec2").describe_volumes(Filters=attached)["Volumes"]:
        assert {tag["Key"]: tag["Value"] for tag in each["Tags"]} == {"slipway": "slipway-t", "Name": BUILDER}
    # What moto does not keep, as it was asked for.
    (inputs,) = (one["inputs"] for one in project.resources("ec2/instance:Instance"))
    assert inputs["instanceInitiatedShutdownBehavior"] == "stop"
    assert inputs["rootBlockDevice"]["encrypted"] is True
    written = yaml.safe_load(inputs["userData"])["write_files"][0]
    assert written["content"] == f"VOLUME={volume['VolumeId']}\nCACHE=500\nIDLE=15\n"


def several(project: BuilderProject, second: dict[str, Any] | None = None, **values: Any) -> None:
    """Write the YAML of a stack for both platforms; the ``second`` builder, or this machine's engine in its place."""
    build = {"platforms": {ARM64: second}} if second else {}
    engines = {} if second else {"engines": {ARM64: ENGINE}}
    project.building(build, platforms=PLATFORMS, **engines, **values)


def test_builder_existing_volume_is_imported_by_id(project: BuilderProject) -> None:
    image(project.moto, "arm64")
    several(project, {"instanceType": "c8g.4xlarge"})
    settings = {"Size": 500, "VolumeType": "gp3", "Iops": 6000, "Throughput": 500, "Encrypted": True}
    subnets = project.api("ec2").describe_subnets()["Subnets"]
    zone = min(subnets, key=lambda subnet: subnet["SubnetId"])["AvailabilityZone"]  # the builders': that of the first
    ids = {}
    for name in (BUILDER, SECOND):
        tags = [{"ResourceType": "volume", "Tags": [{"Key": "Name", "Value": name}]}]  # one tag is missing
        volume = project.api("ec2").create_volume(AvailabilityZone=zone, TagSpecifications=tags, **settings)
        ids[name] = volume["VolumeId"]
    lost = [{"type": "aws:ebs/volume:Volume", "urn": f"::{name}", "id": known} for name, known in ids.items()]
    project.imported(lost, **AWAY)
    assert sorted(volume["id"] for volume in project.resources("ebs/volume:Volume")) == sorted(ids.values())
    output = project.preview("--diff", **AWAY).output
    for known in ids.values():
        change = rf"~ aws:ebs/volume:Volume: \(update\)\n +\[id={known}\](?:\n.*){{0,8}}?\n +\+ slipway: +\"{NAME}\""
        assert re.search(change, output), output


def test_builder_preview_is_offline_and_refuses_mistakes(project: BuilderProject) -> None:
    changes = operations(project.preview(**AWAY).output)
    assert set(changes.values()) == {"+"}
    assert {"Awake builder-awake", "Asleep builder-asleep", "ImageVariant link0"} <= set(changes)
    assert not project.alias.exists()
    project.building({"instanceType": "c7g.4xlarge"})
    failed = project.preview(check=False, **AWAY)
    assert failed.returncode != 0
    refusal = "build.instanceType: c7g.4xlarge is arm64; slipway:platform linux/amd64 is x86_64"
    assert f"error: slipway:runners.{refusal}" in failed.output
    assert "Traceback" not in failed.output


def targets(sessions: Path, begin: int = 0) -> list[str]:
    """Return the machines to which sessions were opened, from a line on."""
    return re.findall(r"--target (\S+)", "\n".join(sessions.read_text().splitlines()[begin:]))


@pytest.mark.slow  # apt, and four updates
def test_second_builder_comes_builds_and_goes_alone(project: BuilderProject, sessions: Path) -> None:
    newest = image(project.moto, "arm64")
    write_files(project, amd64="one", arm64="one")
    several(project)
    project.up(**AWAY)
    first, outputs, calls = project.machine(), project.outputs(), len(targets(sessions))
    parts = outputs["images"]["link0"]["platforms"]
    assert {*targets(sessions)} == {first["InstanceId"]}

    # It comes, and takes over its platform's images. Nothing of the other changes, and its builder sleeps on.
    several(project, {"instanceType": "c8g.4xlarge", "cache": 300, "idle": 20})
    changes = operations(project.preview(**AWAY).output)
    assert {f"Instance {SECOND}", "Awake builder-arm64-awake", "Asleep builder-arm64-asleep"} <= changes.keys()
    assert {what for what in changes if "arm64" not in what} <= {"Stack slipway-t", "ImageIndex link0"}
    project.up(**AWAY)
    second = project.machine(SECOND)
    assert project.machine() == first
    assert {*targets(sessions, calls)} == {second["InstanceId"]} != {first["InstanceId"]}
    assert (second["InstanceType"], second["ImageId"], second["State"]["Name"]) == ("c8g.4xlarge", newest, "stopped")
    assert first["ImageId"] != newest
    (volume,) = project.volumes(SECOND)
    assert (volume["Size"], [one["InstanceId"] for one in volume["Attachments"]]) == (300, [second["InstanceId"]])
    policy = project.api("iam").get_role_policy(RoleName=SECOND, PolicyName="builder")["PolicyDocument"]
    assert iam.mistakes(policy, "builder") == []
    after = project.outputs()
    assert after["runners"].pop("otherBuilders") == {
        ARM64: {
            "instance": second["InstanceId"],
            "volume": volume["VolumeId"],
            "connect": f"ssh -F .slipway/builder/{SECOND}/config slipway-builder",
        }
    }
    assert {**after["runners"], "onDemandDollarsPerHour": {}} == {**outputs["runners"], "onDemandDollarsPerHour": {}}
    assert after["images"]["link0"]["platforms"][AMD64] == parts[AMD64]
    assert after["images"]["link0"]["platforms"][ARM64]["digest"] == parts[ARM64]["digest"]
    keys = [(project.root / f".slipway/builder/{name}/key.pub").read_text() for name in (BUILDER, SECOND)]
    assert len({*keys}) == 2

    # A change of either platform wakes its own builder alone.
    for changed, machine in (({"amd64": "one", "arm64": "two"}, second), ({"amd64": "two", "arm64": "two"}, first)):
        calls = len(targets(sessions))
        write_files(project, **changed)
        project.up(**AWAY)
        assert {*targets(sessions, calls)} == {machine["InstanceId"]}
        assert {project.machine(name)["State"]["Name"] for name in (BUILDER, SECOND)} == {"stopped"}
    assert len({*targets(sessions)}) == 2
    calls = len(targets(sessions))
    assert UNCHANGED.search(project.up(**AWAY).output)
    assert len(targets(sessions)) == calls

    # It goes.
    several(project)
    project.up(**AWAY)
    assert project.volumes(SECOND) == []
    assert project.machine()["InstanceId"] == first["InstanceId"]
    assert "otherBuilders" not in project.outputs()["runners"]
    assert [role["RoleName"] for role in project.api("iam").list_roles()["Roles"] if "builder" in role["RoleName"]] == [
        BUILDER
    ]
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert project.volumes() == []
    connecting = {"ec2:StartInstances", "ec2:StopInstances", "ec2:DescribeInstances"}
    through = {"ec2-instance-connect:SendSSHPublicKey", "ssm:StartSession"}
    assert sorted((project.calls() | connecting | through) - documented()) == []
