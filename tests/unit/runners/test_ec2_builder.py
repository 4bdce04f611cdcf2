"""The way to the machine that builds images: ssh's configuration, the proxy, and what is asked of AWS."""

from __future__ import annotations

import functools
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.loaders
import botocore.session
import pytest
from botocore.config import Config
from botocore.stub import Stubber
from moto import mock_aws

from components.runners.ec2.builder import builder_instance, ssh_config, ssh_proxy
from components.runners.ec2.builder.builder_instance import BuilderInstance
from containers.errors import SlipwayError
from stacks import flavors
from stacks.checks import ec2_site
from stacks.config import ec2
from tests.helpers.every import every
from tests.unit.runners.golden_objects import CASES, recorded
from tests.unit.runners.test_ec2 import RUNNERS

REGION, NAME = "eu-west-1", "slipway-t-builder"


def effective(folder: Path) -> dict[str, str]:
    """Return what ssh itself makes of an alias."""
    command = ["ssh", "-G", "-F", str(folder / "config"), ssh_config.HOST]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on PATH, with stand-ins for AWS's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("aws", "session-manager-plugin"):
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", ["c", "with space and 100%"])
def test_ssh_config_is_understood_by_ssh(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    ssh_config.write(REGION, NAME, root)
    folder = ssh_config.folder(NAME, root)
    settings = effective(folder)
    assert (settings["hostname"], settings["user"], settings["port"]) == ("slipway-builder", "build", "22")
    assert settings["identityfile"].strip('"').replace("%%", "%") == str(folder / "key")
    assert settings["identitiesonly"] == settings["batchmode"] == "yes"
    assert settings["proxycommand"].replace("%%", "%") == (
        f'env PYTHONPATH="{root}" "{sys.executable}" -P -m components.runners.ec2.builder.ssh_proxy '
        f'{REGION} {NAME} "{folder}"'
    )
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    before = (folder / "key.pub").read_text()
    ssh_config.write(REGION, NAME, root)
    assert (folder / "key.pub").read_text() == before


def test_ssh_config_with_a_short_path_shares_connections() -> None:
    short, long = Path("/work/x"), Path("/work") / ("x" * 80)
    assert "ControlPath" in ssh_config.rendered(REGION, NAME, short)
    assert "Control" not in ssh_config.rendered(REGION, NAME, long)


@pytest.mark.parametrize("missing", ["aws", "session-manager-plugin"])
def test_ssh_config_without_a_program_is_refused(
    tmp_path: Path, programs: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / missing).unlink()
    for name in ("ssh", "ssh-keygen"):
        (programs / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(SlipwayError, match=f"^slipway:runners.build needs `{missing}` on PATH: install AWS's "):
        ssh_config.write(REGION, NAME, tmp_path)
    assert not (tmp_path / ".slipway").exists()


models = functools.cache(botocore.loaders.create_loader)
"""Each session would parse EC2's model anew."""


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What patches the test, with a login of AWS: set after moto's, it would leave moto's behind."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(botocore.session, "create_loader", models)
    return monkeypatch


@pytest.fixture
def machine(login: pytest.MonkeyPatch) -> BuilderInstance:
    """The builder, as it is asked for: of moto, or of a stub."""
    login.setattr(builder_instance, "_PAUSE", 0)
    return BuilderInstance(REGION, NAME)


@pytest.fixture
def aws(login: pytest.MonkeyPatch) -> Iterator[Any]:
    """EC2 as moto has it, with one machine by the builder's name."""
    login.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # else moto makes its 1248 machine images for each test
    with mock_aws():
        client: Any = boto3.client("ec2", REGION)
        run(client)
        yield client


def run(client: Any) -> str:
    """Start a machine by the builder's name."""
    image = client.register_image(Name="a machine image")["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": NAME}]}]
    started = client.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)
    value: str = started["Instances"][0]["InstanceId"]
    return value


def state(client: Any) -> str:
    (instance,) = client.describe_instances()["Reservations"][0]["Instances"]
    value: str = instance["State"]["Name"]
    return value


def test_builder_that_may_not_stop_yet_is_an_error(machine: BuilderInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_find", lambda: ("i-1", "running"))
    with Stubber(machine._ec2) as stubbed:
        stubbed.add_client_error("stop_instances", "IncorrectInstanceState", "it is busy")
        with pytest.raises(SlipwayError, match=f"^the builder {NAME} in {REGION} i-1 does not stop: .*it is busy"):
            machine.stop()


def test_builder_is_started_and_stopped_by_name(
    aws: Any, machine: BuilderInstance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.stop()
    machine.stop()
    assert state(aws) == "stopped"
    instance = machine.start(time.monotonic() + 5)
    assert state(aws) == "running"
    # Another by the name is not taken for it, and one that is gone is missed.
    other = run(aws)
    with pytest.raises(SlipwayError) as caught:
        machine.start(0)
    both = ", ".join(sorted([instance, other]))
    assert str(caught.value) == f"the builder {NAME} in {REGION}: several machines have this name: {both}"
    aws.terminate_instances(InstanceIds=[instance, other])
    with pytest.raises(SlipwayError, match="there is none; `pulumi up --refresh` makes it anew"):
        machine.stop()
    # The proxy's last words are where they can be read.
    assert ssh_proxy.main(REGION, NAME, str(tmp_path)) == 1
    message = f"the builder {NAME} in {REGION}: there is none; `pulumi up --refresh` makes it anew\n"
    assert (tmp_path / "refused").read_text() == capfd.readouterr().err == message


def described(state: str) -> dict[str, Any]:
    """Return EC2's answer about a machine in a state."""
    return {"Reservations": [{"Instances": [{"InstanceId": "i-1", "State": {"Name": state}}]}]}


def test_builder_start_with_a_passing_error_is_retried(machine: BuilderInstance) -> None:
    with Stubber(machine._ec2) as stubbed:
        stubbed.add_response("describe_instances", described("stopped"))
        stubbed.add_client_error("start_instances", "InsufficientInstanceCapacity", "We have not enough")
        stubbed.add_response("describe_instances", described("stopped"))
        stubbed.add_response("start_instances", {})
        stubbed.add_response("describe_instances", described("running"))
        assert machine.start(time.monotonic() + 60) == "i-1"
        stubbed.assert_no_pending_responses()


def test_builder_that_aws_never_answers_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    limits = builder_instance._CLIENT
    assert limits.connect_timeout + limits.read_timeout <= 60
    once = Config(connect_timeout=1, read_timeout=0.2, retries={"total_max_attempts": 1})
    monkeypatch.setattr(builder_instance, "_CLIENT", once)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for client in (BuilderInstance(REGION, NAME)._ec2, BuilderInstance(REGION, NAME)._connect):
            assert client.meta.config.read_timeout == once.read_timeout
        begun = time.monotonic()
        with pytest.raises(SlipwayError, match=r"^the builder .*: Read timeout on endpoint URL"):
            BuilderInstance(REGION, NAME).stop()
    assert time.monotonic() - begun < 10


def test_builder_start_with_a_lasting_error_raises_at_once(machine: BuilderInstance) -> None:
    with Stubber(machine._ec2) as stubbed:
        stubbed.add_response("describe_instances", described("stopped"))
        stubbed.add_client_error("start_instances", "UnauthorizedOperation", "You\nmay not")
        with pytest.raises(SlipwayError) as caught:
            machine.start(time.monotonic() + 60)
    assert "UnauthorizedOperation" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("code", ["", "InsufficientInstanceCapacity"])
def test_builder_start_after_its_deadline_raises_the_reason(machine: BuilderInstance, code: str) -> None:
    with Stubber(machine._ec2) as stubbed:
        stubbed.add_response("describe_instances", described("stopped" if code else "stopping"))
        if code:
            stubbed.add_client_error("start_instances", code)
        with pytest.raises(SlipwayError, match=f"i-1 does not start: {f'.*{code}' if code else 'it is stopping'}"):
            machine.start(0)


class Near:
    """In place of a machine on EC2: it lets keys in after a number of tries."""

    region, name = REGION, NAME

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused
        self.admitted: list[tuple[str, str, str]] = []

    def start(self, end: float) -> str:
        assert end > 0
        return "i-1"

    def admit(self, instance: str, user: str, key: Path) -> str:
        self.admitted.append((instance, user, key.name))
        return "EC2InstanceUnavailableException: not yet" if len(self.admitted) <= self.refused else ""


def connect(monkeypatch: pytest.MonkeyPatch, near: Near, seconds: float = 60) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    ssh_proxy.connect(near, Path("key"), time.monotonic() + seconds)  # type: ignore[arg-type]  # in its place


def test_proxy_unconnected_retries_with_the_key(
    monkeypatch: pytest.MonkeyPatch, programs: Path, tmp_path: Path
) -> None:
    (programs / "aws").write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n[ "$(wc -l <{tmp_path}/calls)" -gt 2 ] && exit 0\n'
        'echo "An error occurred (TargetNotConnected) when calling StartSession" >&2\nexit 254\n'
    )
    near = Near(refused=1)
    connect(monkeypatch, near)
    assert near.admitted == [("i-1", "build", "key")] * 4
    call = f"ssm start-session --region {REGION} --target i-1 --document-name AWS-StartSSHSession --parameters portNumber=22"
    assert (tmp_path / "calls").read_text().splitlines() == [call] * 3


@pytest.mark.parametrize(
    ("says", "seconds"), [("TargetNotConnected", -1), ("AccessDeniedException", 60)], ids=["late", "denied"]
)
def test_proxy_refused_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, programs: Path, says: str, seconds: float
) -> None:
    (programs / "aws").write_text(f'#!/bin/sh\nprintf "\\nAn error occurred ({says})\\nmore" >&2\nexit 254\n')
    with pytest.raises(SlipwayError) as caught:
        connect(monkeypatch, Near(), seconds)
    assert str(caught.value) == f"{NAME} (i-1): An error occurred ({says})\\nmore"


def test_proxy_with_a_broken_session_raises_connection_error(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    (programs / "aws").write_text("#!/bin/sh\necho 'Connection to destination port failed' >&2\nexit 1\n")
    with pytest.raises(ConnectionError, match="Connection to destination port failed"):
        connect(monkeypatch, Near())


def test_builder_admits_a_key_by_instance_connect(tmp_path: Path, machine: BuilderInstance) -> None:
    key, instance = f"ssh-ed25519 {'A' * 68} x", "i-0123456789abcdef0"
    (tmp_path / "key.pub").write_text(key)
    expected = {"InstanceId": instance, "InstanceOSUser": "build", "SSHPublicKey": key}
    with Stubber(machine._connect) as stubbed:
        stubbed.add_response("send_ssh_public_key", {"Success": True}, expected)
        stubbed.add_client_error("send_ssh_public_key", "EC2InstanceUnavailableException", "not yet")
        stubbed.add_client_error("send_ssh_public_key", "AuthException", "never")
        assert machine.admit(instance, "build", tmp_path / "key") == ""
        assert "not yet" in machine.admit(instance, "build", tmp_path / "key")
        with pytest.raises(SlipwayError, match="AuthException"):
            machine.admit(instance, "build", tmp_path / "key")


NETWORKS = [
    ec2_site.Network(f"subnet-{zone}", "vpc-1", f"eu-west-1{zone}", "10.0.0.0/24", public=False) for zone in "ab"
]


def a_type(name: str, zones: list[str]) -> ec2_site.InstanceType:
    return ec2_site.InstanceType(name, ("x86_64",), 1, 0, 1, 0, cluster=True, spot=True, zones=tuple(zones))


def refused(zones: list[str], budgets: dict[str, int] | None = None, **build: Any) -> str:
    given = {**RUNNERS, "build": {"instanceType": "c7i.4xlarge", **build}}
    config = flavors.load({"flavor": "runners", "runners": given}, "stack x").runners
    assert isinstance(config, ec2.Ec2RunnersConfig)
    types = [a_type(name, ["eu-west-1a"]) for name in config.instance_types]
    builder = a_type("c7i.4xlarge", zones)
    builders = {"linux/amd64": ec2_site.Builder("build", builder, "ami-1", "x86_64")}
    site = ec2_site.Site(types, NETWORKS, "vpc-1", "ami-1", "x86_64", 60, "/dev/sda1", {}, {}, builders)
    try:
        ec2_site.check(config, site, "linux/amd64", budgets or {})
    except SlipwayError as error:
        return str(error)
    network = site.network(builder)
    assert network
    return network.subnet


def test_builder_network_is_in_a_zone_with_its_type() -> None:
    assert refused(["eu-west-1b", "eu-west-1c"]) == "subnet-b"
    assert refused(["eu-west-1c"]) == (
        "slipway:runners.build.instanceType: c7i.4xlarge is not offered in eu-west-1a, eu-west-1b, where the subnets "
        "are; it is offered in eu-west-1c"
    )
    assert refused([]).endswith("where the subnets are; nor elsewhere in eu-west-1")


def test_builder_cache_below_the_images_size_is_refused() -> None:
    assert refused(["eu-west-1a"], {"torch": 20 * 1024**3}, cache=60) == (
        "slipway:runners.build.cache: 60 GiB is too small for torch within budgets; give at least 80"
    )


@every(
    "build, message",
    [
        ({"instanceType": "c7i"}, "slipway:runners.build.instanceType: 'c7i': expected an instance type"),
        ({"instanceType": "c7i.large", "cache": 5}, "slipway:runners.build.cache: '5': input should be greater"),
        ({"instanceType": "c7i.large", "size": 5}, "slipway:runners.build: unknown key 'size'"),
        (
            {"instanceType": "c7i.large", "replicas": 2},
            "slipway:runners.build: replicas: the builder on EC2 is one machine, which each update that builds starts",
        ),
        ({}, "slipway:runners.build.instanceType: "),
    ],
)
def test_builder_config_invalid_is_refused_in_one_line(build: dict[str, Any], message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        flavors.load({"flavor": "runners", "runners": {**RUNNERS, "build": build}}, "stack x")
    (line,) = str(caught.value).splitlines()
    assert message in line, line


def test_unpushed_image_on_builder_is_read_by_its_ssh() -> None:
    checks = {"torch": {"torch/checks/10-one": "a" * 64}}
    recorder = recorded(CASES["ec2"], checks=checks, publish=False, buildOn="runners")
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")["torch-inspection"]
    assert (unpushed["engine"], unpushed["tls"]) == ("ssh://slipway-builder", {})
    assert unpushed["ssh"] == ssh_config.options(NAME)
    # It is on for that, and asleep afterwards, though the image was built before.
    for kind in ("Awake", "Asleep"):
        (power,) = recorder.of_type(f"pulumi-python:dynamic/runners:{kind}").values()
        assert power["images"]["torch-inspection"] == "saved"


def test_build_on_runners_without_a_build_service_is_refused() -> None:
    with pytest.raises(SlipwayError, match="the stack has no build service: set runners.build"):
        flavors.load({"flavor": "local", "buildOn": "runners", "runners": RUNNERS}, "stack x")
    given = {"flavor": "local", "buildOn": "runners", "runners": {**RUNNERS, "build": {"instanceType": "c7i.large"}}}
    with pytest.raises(
        SlipwayError, match="is this machine's own registry, which runners do not reach: give slipway:reg"
    ):
        flavors.load(given, "stack x")
    for pushed in ({"publish": False}, {"registry": {"kind": "local", "address": "r.example:5000"}}):
        assert flavors.load({**given, **pushed}, "stack x").build_on == "runners"


def test_builder_of_one_platform_is_refused_the_other() -> None:
    """It has no emulation: a build for the other one would fail on it after all that comes before."""
    given = {
        "flavor": "local",
        "platforms": ["linux/arm64", "linux/amd64"],
        "buildOn": "runners",
        "publish": False,
        "runners": {**RUNNERS, "build": {"instanceType": "c7g.large"}},
    }
    with pytest.raises(SlipwayError) as refusal:
        flavors.load(given, "stack x")
    assert str(refusal.value) == (
        "stack x: slipway:buildOn: 'runners': runners.build is one machine, for linux/arm64, the first of "
        "slipway:platforms: give an instanceType in runners.build.platforms.linux/amd64, or an engine in "
        "slipway:engines.linux/amd64"
    )
    engines = {"linux/amd64": "ssh://builder"}
    assert flavors.load({**given, "engines": engines}, "stack x").build_on == "runners"
