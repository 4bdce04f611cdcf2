"""Builders on EC2 for several platforms: which are asked for, what AWS must have for each, and what each of them builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pulumi
import pulumi_aws as aws
import pytest
import yaml

from components.runners.ec2 import aws_lookup, ec2_deployment
from components.runners.ec2.builder import ec2_builder, ssh_config
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.checks import ec2_site
from stacks.config import ec2
from stacks.config.stack_file import ROOT
from stacks.graph import Graph
from tests.fakes.pulumi_mocks import Recorder, run
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import RUNNERS
from tests.unit.runners.test_ec2_builder import NETWORKS

AMD64, ARM64 = PLATFORMS = ["linux/amd64", "linux/arm64"]
FIRST: dict[str, Any] = {"instanceType": "c7i.4xlarge"}
SECOND: dict[str, Any] = {"instanceType": "c8g.4xlarge"}
BOTH: dict[str, Any] = {**FIRST, "platforms": {ARM64: SECOND}}
IMAGE = "ami-0123456789abcdef0"
ORIGINAL = ec2_builder.Ec2Builder.__init__
POWER = "pulumi-python:dynamic/runners:"
NAMES = {AMD64: "slipway-t-builder", ARM64: "slipway-t-builder-arm64"}


def stack(build: Mapping[str, Any] | None, **values: Any) -> dict[str, Any]:
    """Return a stack's keys; ``build`` is that of its runners."""
    runners = {**RUNNERS, **({"build": build} if build is not None else {})}
    return {
        "flavor": "local",
        "platforms": PLATFORMS,
        "buildOn": "runners",
        "publish": False,
        "runners": runners,
        **values,
    }


def loaded(build: Mapping[str, Any], **values: Any) -> ec2.Ec2RunnersConfig:
    config = flavors.load(stack(build, **values), "stack x").runners
    assert isinstance(config, ec2.Ec2RunnersConfig)
    return config


def test_second_builder_has_keys_and_defaults_of_its_own() -> None:
    config = loaded({**FIRST, "cache": 100, "idle": 5, "platforms": {ARM64: {**SECOND, "ami": IMAGE}}})
    first, second = config.builders(AMD64).values()
    assert (first.instance_type, first.cache, first.idle) == ("c7i.4xlarge", 100, 5)
    assert (second.instance_type, second.cache, second.idle) == ("c8g.4xlarge", 500, 15)
    assert isinstance(second, ec2.PlatformBuildConfig)
    assert (config.ami, second.ami) == (None, IMAGE)
    assert list(config.builders(AMD64)) == PLATFORMS
    assert loaded(FIRST, platforms=[AMD64]).builders(AMD64).keys() == {AMD64}
    assert flavors.load({"flavor": "runners", "runners": RUNNERS}, "stack x").runners.builders(AMD64) == {}  # type: ignore[union-attr]


@every(
    "build, values, message",
    [
        (
            {**FIRST, "platforms": {AMD64: SECOND}},
            {},
            ("slipway:buildOn: 'runners': runners.build.platforms.linux/amd64: runners.build itself builds linux/amd64, "
            "the stack's first platform: leave it out"),
        ),
        (
            BOTH,
            {"platforms": [ARM64, AMD64]},
            ("slipway:buildOn: 'runners': runners.build.platforms.linux/arm64: runners.build itself builds linux/arm64, "
            "the stack's first platform: leave it out"),
        ),
        (
            BOTH,
            {"platforms": [AMD64]},
            "slipway:buildOn: 'runners': runners.build.platforms.linux/arm64: the stack has linux/amd64: leave it out",
        ),
        (
            BOTH,
            {"engines": {ARM64: "ssh://arm"}},
            ("slipway:buildOn: 'runners': runners.build.platforms.linux/arm64: slipway:engines.linux/arm64 builds these "
            "images: leave one of the two out"),
        ),
        (
            BOTH,
            {"platforms": [AMD64, "linux/arm64/v8"]},
            ("slipway:platforms.1: 'linux/arm64/v8': images of linux/arm64 are for all its variants here: expected "
            "linux/arm64"),
        ),
        (
            BOTH,
            {"engines": {AMD64: "ssh://amd"}},
            ("slipway:buildOn: 'runners': runners.build: slipway:engines.linux/amd64 builds these images: leave one of the "
            "two out"),
        ),
        (
            FIRST,
            {"engines": {AMD64: "amd"}},
            ("slipway:engines.linux/amd64.0: 'amd': expected ssh://[user@]host[:port], unix:///path/of/socket or "
            "tcp://host:port"),
        ),
        (
            FIRST,
            {},
            ("slipway:buildOn: 'runners': runners.build is one machine, for linux/amd64, the first of slipway:platforms: "
            "give an instanceType in runners.build.platforms.linux/arm64, or an engine in slipway:engines.linux/arm64"),
        ),
        (
            {**FIRST, "platforms": {"linux/arm64/v8": SECOND}},
            {},
            ("slipway:runners.build.platforms.linux/arm64/v8: 'linux/arm64/v8': images of linux/arm64 are for all its "
            "variants here: expected linux/arm64"),
        ),
        (
            {**FIRST, "platforms": {"linux/riscv64": SECOND}},
            {},
            ("slipway:runners.build.platforms.linux/riscv64: 'linux/riscv64': input should be 'linux/amd64' or "
            "'linux/arm64'"),
        ),
        (
            {**FIRST, "platforms": {ARM64: {}}},
            {},
            "slipway:runners.build.platforms.linux/arm64.instanceType: is required",
        ),
        (
            {**FIRST, "platforms": {ARM64: {**SECOND, "ami": "ubuntu"}}},
            {},
            ("slipway:runners.build.platforms.linux/arm64.ami: 'ubuntu': expected the id of an image, such as "
            "ami-0123456789abcdef0"),
        ),
        (
            {**FIRST, "image": IMAGE},
            {"platforms": [AMD64]},
            "slipway:runners.build: unknown key 'image'; the keys here are: instanceType, cache, idle, platforms",
        ),
        (
            {**FIRST, "platforms": {ARM64: {**SECOND, "platforms": {}}}},
            {},
            ("slipway:runners.build.platforms.linux/arm64: unknown key 'platforms'; the keys here are: instanceType, "
            "cache, idle, ami"),
        ),
        ({**FIRST, "platforms": [ARM64]}, {}, "slipway:runners.build.platforms: '[linux/arm64]': expected a mapping of keys to values"),
        ({**FIRST, "platforms": None}, {}, "slipway:runners.build.platforms: has no value: give one, or leave the key out"),
    ],
)  # fmt: skip
def test_second_builder_config_wrong_is_refused_in_one_line(
    build: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SlipwayError) as caught:
        loaded(build, **values)
    assert str(caught.value) == f"stack x: {message}"


def test_builder_of_no_platform_is_refused_in_one_line() -> None:
    values = {key: value for key, value in stack(FIRST).items() if key != "platforms"}
    with pytest.raises(SlipwayError) as caught:
        flavors.load({**values, "platform": "linux/riscv64"}, "stack x")
    line = "slipway:platform: 'linux/riscv64': input should be 'linux/amd64' or 'linux/arm64'"
    assert str(caught.value) == f"stack x: {line}"


@every("keys", [{"buildOn": "engine"}, {}])
def test_second_builder_that_builds_nothing_is_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    values = {key: value for key, value in stack(BOTH).items() if key != "buildOn"} | keys
    with pytest.raises(SlipwayError) as caught:
        plan.specs(values, "stack x", tmp_path)
    assert str(caught.value) == (
        "stack x: slipway:runners.build.platforms.linux/arm64: nothing is built there: set slipway:buildOn: runners, or "
        "leave it out"
    )


def test_second_builder_replicas_are_refused() -> None:
    with pytest.raises(
        SlipwayError, match=r"^stack x: slipway:runners.build.platforms.linux/arm64: replicas: the buil"
    ):
        loaded({**FIRST, "platforms": {ARM64: {**SECOND, "replicas": 2}}})


def a_type(name: str, architecture: str, zones: str = "ab") -> ec2_site.InstanceType:
    places = tuple(f"eu-west-1{zone}" for zone in zones)
    return ec2_site.InstanceType(name, (architecture,), 1, 0, 1, 0, cluster=True, spot=True, zones=places)


def site(second: ec2_site.Builder) -> ec2_site.Site:
    """Return what AWS has: runners of an architecture, the builder of each, and two subnets."""
    first = ec2_site.Builder("build", a_type("c7i.4xlarge", "x86_64"), "ami-1", "x86_64")
    builders = {AMD64: first, ARM64: second}
    types = [a_type("g5.2xlarge", "x86_64")]
    return ec2_site.Site(types, NETWORKS, "vpc-1", "ami-1", "x86_64", 60, "/dev/sda1", {}, {}, builders)


GOOD = ec2_site.Builder("build.platforms.linux/arm64", a_type("c8g.4xlarge", "arm64"), "ami-2", "arm64")


@every(
    "second, build, message",
    [
        (GOOD, {}, ""),
        (
            replace(GOOD, machine=a_type("c8g.4xlarge", "x86_64")),
            {},
            "instanceType: c8g.4xlarge is x86_64; linux/arm64 is arm64",
        ),
        (replace(GOOD, image_architecture="x86_64"), {}, "ami: ami-2 is for x86_64; linux/arm64 is arm64"),
        # The image of the runners is not for the other architecture.
        (
            replace(GOOD, image="ami-1", image_architecture="x86_64"),
            {},
            "ami: ami-1 is for x86_64; linux/arm64 is arm64",
        ),
        (
            replace(GOOD, machine=a_type("c8g.4xlarge", "arm64", "c")),
            {},
            (
                "instanceType: c8g.4xlarge is not offered in eu-west-1a, eu-west-1b, where the subnets are; it is offered "
                "in eu-west-1c"
            ),
        ),
        (GOOD, {"cache": 79}, "cache: 79 GiB is too small for torch within budgets; give at least 80"),
        (GOOD, {"cache": 80}, ""),
    ],
)
def test_second_builder_that_could_not_run_is_refused(
    second: ec2_site.Builder, build: dict[str, Any], message: str
) -> None:
    config = loaded({**FIRST, "platforms": {ARM64: {**SECOND, **build}}})
    refusal = ""
    try:
        ec2_site.check(config, site(second), AMD64, {"torch": 20 * 1024**3})
    except SlipwayError as error:
        refusal = str(error)
    assert refusal == (message and f"slipway:runners.build.platforms.linux/arm64.{message}")


def test_both_builders_mistakes_are_said_together() -> None:
    config = loaded({**FIRST, "cache": 60, "platforms": {ARM64: {**SECOND, "cache": 60}}})
    with pytest.raises(SlipwayError) as caught:
        ec2_site.check(config, site(GOOD), AMD64, {"torch": 20 * 1024**3})
    assert [line.partition(":")[2].partition(":")[0] for line in str(caught.value).splitlines()] == [
        "runners.build.cache",
        "runners.build.platforms.linux/arm64.cache",
    ]


@every("own", [None, IMAGE])
def test_second_builder_image_is_looked_up_for_its_processor(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def parameter(name: str, opts: object) -> Any:  # noqa: ARG001 - as the SDK has it
        asked.append(name)
        return SimpleNamespace(value=f"newest of {name.split('/')[5]}")

    def ami(filters: Any, opts: object) -> Any:  # noqa: ARG001 - as the SDK has it
        (name,) = filters[0]["values"]
        disk = SimpleNamespace(device_name="/dev/sda1", ebs={"volume_size": "60"})
        architecture = "x86_64" if "x86_64" in name else "arm64"
        return SimpleNamespace(
            id=name, architecture=architecture, root_device_name="/dev/sda1", block_device_mappings=[disk]
        )

    monkeypatch.setattr(aws.ssm, "get_parameter", parameter)
    monkeypatch.setattr(aws.ec2, "get_ami", ami)
    monkeypatch.setattr(aws_lookup, "_machine", lambda name, _opts, key: a_type(f"{name} of {key}", "arm64"))
    config = loaded({**FIRST, "platforms": {ARM64: {**SECOND, "ami": own} if own else SECOND}})
    options = pulumi.InvokeOptions()
    image, _ = aws_lookup._image(config.ami, AMD64, "ami", options)
    first, second = aws_lookup._builders(config, AMD64, image, options).values()
    assert (first.key, first.image, first.image_architecture) == ("build", "newest of x86_64", "x86_64")
    assert (second.key, second.image_architecture) == ("build.platforms.linux/arm64", "arm64")
    assert second.image == (own or "newest of arm64")
    assert second.machine.name == "c8g.4xlarge of build.platforms.linux/arm64.instanceType"
    assert [name.split("/")[5] for name in asked] == (["x86_64"] if own else ["x86_64", "arm64"])


def looked_up(config: ec2.Ec2RunnersConfig) -> ec2_site.Site:
    """Return what AWS answers to a configuration."""
    both = site(GOOD)
    return replace(both, builders={platform: both.builders[platform] for platform in config.builders(AMD64)})


def reversed_site(config: ec2.Ec2RunnersConfig) -> ec2_site.Site:
    """Return what AWS answers where the runners, and so the first builder, are for arm64."""
    first = replace(GOOD, key="build")
    second = replace(site(GOOD).builders[AMD64], key="build.platforms.linux/amd64", image="ami-1")
    machines = [a_type(name, "arm64") for name in config.instance_types]
    builders = {ARM64: first, AMD64: second}
    return replace(site(GOOD), image="ami-2", image_architecture="arm64", builders=builders, machines=machines)


def declared(
    build: Mapping[str, Any] = BOTH, answer: Callable[[ec2.Ec2RunnersConfig], ec2_site.Site] = looked_up, **config: Any
) -> tuple[Recorder, dict[str, Any]]:
    """Return what a stack declares, with AWS's answer, and its outputs."""
    given = {"chain": {"source": {}, "torch": {"SOURCE": "source"}}, "products": ("source",), "indexed": True, **config}
    with (
        patch.object(ec2_deployment, "look_up", lambda config, *_: answer(config)),
        patch.object(ssh_config, "write"),
    ):
        recorder, values = run(**{key: value for key, value in {**stack(build), **given}.items() if key != "flavor"})
    return recorder, values["outputs"]


def test_both_builders_have_resources_of_their_own() -> None:
    recorder, outputs = declared({**FIRST, "platforms": {ARM64: {**SECOND, "cache": 300, "idle": 20}}})
    machines = recorder.of_type("aws:ec2/instance:Instance")
    volumes = recorder.of_type("aws:ebs/volume:Volume")
    assert {name: (one["ami"], one["instanceType"]) for name, one in machines.items()} == {
        NAMES[AMD64]: ("ami-1", "c7i.4xlarge"),
        NAMES[ARM64]: ("ami-2", "c8g.4xlarge"),
    }
    assert {name: one["size"] for name, one in volumes.items()} == {NAMES[AMD64]: 500, NAMES[ARM64]: 300}
    for name, one in {**machines, **volumes}.items():
        assert one["tags"] == {"slipway": "slipway-t", "Name": name}
    for typ in ("iam/role:Role", "iam/instanceProfile:InstanceProfile", "ec2/securityGroup:SecurityGroup"):
        named = {name: one["name"] for name, one in recorder.of_type(f"aws:{typ}").items() if "builder" in name}
        assert named == {name: name for name in NAMES.values()}
    written = yaml.safe_load(machines[NAMES[ARM64]]["userData"])["write_files"][0]
    assert written["content"].endswith("\nCACHE=300\nIDLE=20\n")
    # Where the account may not use the region of the prices, this provider starts and answers nothing.
    prices = recorder.resources["pulumi:providers:aws", "prices-aws"]
    skipped = {name for name, value in prices.items() if name.startswith("skip") and value == "true"}
    assert {"skipCredentialsValidation", "skipRequestingAccountId"} < skipped
    runners = outputs["runners"]
    assert runners["builder"].keys() == {"instance", "volume", "connect"}
    assert runners["otherBuilders"].keys() == {ARM64}
    assert runners["builder"]["connect"] == "ssh -F .slipway/builder/slipway-t-builder/config slipway-builder"
    second = runners["otherBuilders"][ARM64]
    assert second["connect"] == "ssh -F .slipway/builder/slipway-t-builder-arm64/config slipway-builder"


def test_second_builder_leaves_all_of_the_first_as_it_is() -> None:
    """But for what builds the other platform's images, which were not there, or were an engine's."""
    engine = {ARM64: "ssh://arm"}
    alone, outputs = declared(FIRST, engines=engine)
    both, with_second = declared(BOTH)
    added = {name for _, name in both.resources.keys() - alone.resources.keys()}
    assert added
    assert {name for name in added if "builder-arm64" not in name} == set()
    assert {name for _, name in alone.resources.keys() - both.resources.keys()} == {"engine-arm64"}
    for key in alone.resources.keys() & both.resources.keys():
        # An archive is none but itself.
        before, after = ({**one.resources[key], "code": None} for one in (alone, both))
        assert before == after, key
    second = with_second["runners"].pop("otherBuilders")
    assert with_second == outputs
    assert second.keys() == {ARM64}


def test_images_of_each_platform_are_built_by_its_builder() -> None:
    recorder, _ = declared(checks={"torch": {"torch/checks/10-one": "a" * 64}})
    hosts = recorder.of_type("pulumi:providers:docker")
    assert {name: one["sshOpts"] for name, one in hosts.items()} == {
        "builder-engine": '["-F", ".slipway/builder/slipway-t-builder/config", "-o", "ConnectTimeout=900"]',
        "builder-arm64-engine": '["-F", ".slipway/builder/slipway-t-builder-arm64/config", "-o", "ConnectTimeout=900"]',
    }
    assert {one["host"] for one in hosts.values()} == {"ssh://slipway-builder"}
    assert {
        name: recorder.providers[name] for name in recorder.of_type("docker:index/image:Image") if "checks" not in name
    } == {
        "source": "builder-engine",
        "torch-amd64": "builder-engine",
        "source-arm64": "builder-arm64-engine",
        "torch-arm64": "builder-arm64-engine",
    }
    # What is not pushed is read where it is.
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")
    assert {name: one["ssh"] for name, one in unpushed.items()} == {
        "torch-amd64-inspection": ssh_config.options(NAMES[AMD64]),
        "torch-arm64-inspection": ssh_config.options(NAMES[ARM64]),
    }


@every("kind", ["Awake", "Asleep"])
def test_change_of_one_platform_wakes_its_builder_alone(kind: str) -> None:
    recorder, _ = declared(checks={"torch": {"torch/checks/10-one": "a" * 64}})
    powers = {one["name"]: one["images"] for one in recorder.of_type(f"{POWER}{kind}").values()}
    assert {name: set(images) for name, images in powers.items()} == {
        NAMES[AMD64]: {"source", "torch-amd64", "torch-amd64-checks", "torch-amd64-inspection"},
        NAMES[ARM64]: {"source-arm64", "torch-arm64", "torch-arm64-checks", "torch-arm64-inspection"},
    }


def test_image_of_an_engine_does_not_wake_the_builder() -> None:
    recorder, _ = declared(FIRST, engines={ARM64: "ssh://arm"})
    (power,) = recorder.of_type(f"{POWER}Awake").values()
    assert power["images"].keys() == {"source", "torch-amd64"}


def test_first_builder_of_arm64_has_a_second_of_amd64() -> None:
    build = {**SECOND, "platforms": {AMD64: FIRST}}
    recorder, outputs = declared(build, reversed_site, platforms=[ARM64, AMD64])
    machines = recorder.of_type("aws:ec2/instance:Instance")
    assert {name: (one["ami"], one["instanceType"]) for name, one in machines.items()} == {
        "slipway-t-builder": ("ami-2", "c8g.4xlarge"),
        "slipway-t-builder-amd64": ("ami-1", "c7i.4xlarge"),
    }
    assert outputs["runners"]["otherBuilders"].keys() == {AMD64}
    # The source is for linux/amd64 whatever the stack's platforms are, and each builder needs it.
    assert recorder.providers["torch-arm64"] == recorder.providers["source-arm64"] == "builder-engine"
    assert recorder.providers["torch-amd64"] == recorder.providers["source"] == "builder-amd64-engine"


def test_what_no_builder_is_for_is_built_on_the_first() -> None:
    """A source is for linux/amd64, which a stack for arm64 alone has no builder of."""
    chain: dict[str, dict[str, str]] = {"source": {}, "torch": {"SOURCE": "source"}, "other": {}}
    checks = {name: {f"{name}/checks/10-one": "a" * 64} for name in ("torch", "other")}

    def answer(config: ec2.Ec2RunnersConfig) -> ec2_site.Site:
        both = reversed_site(config)
        return replace(both, builders={ARM64: both.builders[ARM64]})

    recorder, _ = declared(
        SECOND, answer, platforms=[ARM64], indexed=False, chain=chain, checks=checks, on={"torch": ARM64}
    )
    built = {name: one for name, one in recorder.providers.items() if "checks" not in name}
    assert built == dict.fromkeys(("source", "torch", "other"), "builder-engine")
    for kind in ("Awake", "Asleep"):
        (power,) = recorder.of_type(f"{POWER}{kind}").values()
        assert {name for name in power["images"] if "-" not in name} == {"source", "torch", "other"}
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")
    assert {name: (one["engine"], one["ssh"]) for name, one in unpushed.items()} == dict.fromkeys(
        ("torch-inspection", "other-inspection"), ("ssh://slipway-builder", ssh_config.options(NAMES[AMD64]))
    )


def test_second_builder_of_the_longest_stack_has_fitting_names() -> None:
    """At most 64 characters for a role (CreateRole, IAM); a security group and a profile may have more."""
    name = "g" * 36
    graph = Graph(f"stack {name}", flavors.load(stack(BOTH), "stack x"), (), ROOT, ())
    assert list(ec2_site.unfit_name(graph)) == []
    recorder, _ = declared(stack=name)
    roles = [one["name"] for one in recorder.of_type("aws:iam/role:Role").values()]
    assert max(roles, key=len) == f"slipway-{name}-builder-arm64"
    assert max(map(len, roles)) <= 64


def test_second_builder_pinned_image_alone_replaces_it() -> None:
    """AWS publishes an image each week."""
    for own, of_runners in ((None, None), (IMAGE, None), (None, IMAGE)):
        second = {**SECOND, **({"ami": own} if own else {})}
        pinned: dict[str, bool] = {}

        def keep(
            of: ec2_builder.Ec2Builder, name: str, args: ec2_builder.Ec2BuilderArgs, pinned: dict[str, bool] = pinned
        ) -> None:
            pinned[name] = args.pinned
            ORIGINAL(of, name, args)

        runners = {
            **RUNNERS,
            "build": {**FIRST, "platforms": {ARM64: second}},
            **({"ami": of_runners} if of_runners else {}),
        }
        with patch.object(ec2_builder.Ec2Builder, "__init__", keep):
            declared(runners=runners)
        assert pinned == {"builder": of_runners is not None, "builder-arm64": own is not None}
