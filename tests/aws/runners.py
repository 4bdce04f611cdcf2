"""Parts of the tests of runners on EC2: what moto is given beforehand, and a project whose stack has such runners."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES, InstanceType, InstanceTypeBackend
from moto.ssm.models import Parameter, ssm_backends

from stacks.config.ec2 import AMI_PARAMETER
from tests.aws.conftest import ACCOUNT, REGION, AwsProject
from tests.engine.project import Run
from tests.fakes.aws.resource_reads import remembered
from tests.fakes.aws.resource_types import RUNNERS as KINDS
from tests.provider.conftest import Registry

SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:slipway/github-AbCdEf"
HOOK_SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:slipway/webhook-AbCdEf"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"
NAME = "slipway-t"
"""What the stack's runners are called."""

BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/slipway-boundary"

RUNNERS: dict[str, Any] = {
    "kind": "ec2",
    "region": REGION,
    "account": ACCOUNT,
    "github": {"url": "https://github.com/acme", "secret": SECRET},
    "labels": ["gpu"],
    "instanceTypes": ["g6.2xlarge", "g5.2xlarge"],
    "minGpus": 1,
    "alarm": {"topic": TOPIC},
}

WITH_WEBHOOK: dict[str, Any] = {"github": {**RUNNERS["github"], "webhookSecret": HOOK_SECRET}}
"""What an old stack has besides, whose jobs a webhook notes."""

INSTANCE_TYPE_OFFERINGS["availability-zone"][REGION] += [
    {"InstanceType": name, "LocationType": "availability-zone", "Location": f"{REGION}{zone}"}
    for name in ("g4ad.xlarge", "g5g.xlarge", "g6.2xlarge", "p4d.24xlarge", "p5.48xlarge")
    for zone in "abc"
]
"""What moto's list of where which type is to be had lacks."""

INSTANCE_TYPES["g4ad.xlarge"] = {
    **INSTANCE_TYPES["g4dn.xlarge"],
    "InstanceType": "g4ad.xlarge",
    "GpuInfo": {"Gpus": [{"Count": 1, "Manufacturer": "AMD", "Name": "Radeon Pro V520"}]},
}
"""A type of which moto does not know: its GPU is not NVIDIA's."""
InstanceTypeBackend.instance_types.append(InstanceType("g4ad.xlarge"))

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
"""Else moto makes its 1248 machine images anew after each reset. Tests register those that they use."""


@cache
def client(service: str, moto: str) -> Any:
    """Return a client of one of the services that moto has. To make one takes longer than to call it."""
    return boto3.client(service, REGION, endpoint_url=moto, aws_access_key_id="test", aws_secret_access_key="test")


class _Image(Ami):  # type: ignore[misc]  # moto's have no types here
    """An image whose root volume has a size that one can choose; moto's have 15 GiB."""

    gb = 0

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        return [{"DeviceName": self.root_device_name, "Ebs": {"VolumeSize": self.gb}}]


def image(moto: str, architecture: str, gb: int = 60) -> str:
    """Register a machine image, as the newest Deep Learning AMI of its architecture, and return its id."""
    name = f"Deep Learning Base ({architecture})"
    image: str = client("ec2", moto).register_image(Name=name, RootDeviceName="/dev/sda1")["ImageId"]
    ami = ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[image]
    ami.__class__, ami.architecture, ami.gb = _Image, architecture, gb
    backend = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]
    name = AMI_PARAMETER.format(architecture=architecture)
    # By its backend: its API, as AWS's, lets nobody write what is AWS's own.
    backend._parameters[name].append(
        Parameter(
            account_id=DEFAULT_ACCOUNT_ID,
            name=name,
            value=image,
            parameter_type="String",
            description="",
            allowed_pattern=None,
            keyid=None,
            last_modified_date=0,
            version=1,
            data_type="aws:ec2:image",
        )
    )
    return image


def _import_id(resource: dict[str, Any]) -> Any:
    """Return the id by which the plugin imports a resource that a state has."""
    return re.sub(r"\w+", lambda key: str(resource["inputs"][key[0]]), KINDS[resource["type"]].shape) or resource["id"]


class RunnersProject(AwsProject):
    """A project whose stack has runners on EC2, and no image."""

    def __init__(self, root: Path, moto: str, registry: Registry) -> None:
        self.moto = moto
        super().__init__(root, moto, registry)
        self._calls = root.with_name("calls")
        self.environment["AWS_CALLS"] = str(self._calls)
        self.runners()

    def runners(self, *, without: tuple[str, ...] = (), **values: Any) -> None:
        """Write the stack's YAML; ``values`` are what differs from :data:`RUNNERS`, keys of the stack in ``stack``."""
        stack = values.pop("stack", {})
        whole = {**RUNNERS, "push": ["service"], "permissionsBoundary": BOUNDARY, **values}
        runners = {key: value for key, value in whole.items() if key not in without}
        self.configure(
            **{
                "registry": {"repository": f"{self.host}/ml", "create": False},
                "flavor": "runners",
                "runners": runners,
                **stack,
            }
        )

    def lose(self) -> list[dict[str, Any]]:
        """Lose the stack's state, but nothing that it tells of; return the resources that it had."""
        resources: list[dict[str, Any]] = json.loads(self.exported())["deployment"]["resources"]
        self.pulumi("stack", "rm", "-s", "t", "--yes", "--force", "--preserve-config")
        self.pulumi("stack", "init", "t")
        return resources

    def imported(self, resources: list[dict[str, Any]], **environment: str) -> Run:
        """Import, by the ids that the plugin's documentation names, what AWS still has of a lost state."""
        self.preview("--import-file", "import.json", check=True, **environment)
        file = self.root / "import.json"
        listed = json.loads(file.read_text())["resources"]
        ids = {
            (one["type"], one["urn"].rpartition("::")[2]): _import_id(one) for one in resources if one["type"] in KINDS
        }
        kept = []
        for one in listed:
            name = (one["type"], one.get("logicalName", one["name"]))
            if one["name"] in {"runners", "builder", "builder-arm64", "runners-aws"}:
                kept.append(one)
            elif name in ids and KINDS[one["type"]].read is not remembered:
                kept.append({**one, "id": ids[name]})
        file.write_text(json.dumps({"resources": kept}))
        options = ("--yes", "--skip-preview", "--generate-code=false", "--protect=false")
        return self.pulumi("import", "-s", "t", "--file", "import.json", *options, check=True, **environment)

    def api(self, service: str) -> Any:
        """Return a client of the AWS that the stack is deployed to."""
        return client(service, self.moto)

    def calls(self) -> set[str]:
        """Return all that was asked of AWS so far, as ``service:Action``."""
        return set(self._calls.read_text().splitlines())

    def resources(self, typ: str) -> list[dict[str, Any]]:
        """Return the stack's resources of a type, as its state has them."""
        resources = json.loads(self.exported())["deployment"]["resources"]
        return [one for one in resources if one["type"] == f"aws:{typ}"]

    def template(self, name: str = NAME) -> Any:
        """Return the newest version of a launch template, as AWS has it."""
        answer = self.api("ec2").describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Latest"])
        return answer["LaunchTemplateVersions"][0]

    def group(self, kind: str) -> Any:
        """Return the group of a kind of capacity, as AWS has it."""
        names = [f"{NAME}-{kind}"]
        return self.api("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"][0]

    def policy(self, whose: str) -> Any:
        """Return what a role of the stack may do, as AWS has it."""
        answer = self.api("iam").get_role_policy(RoleName=f"{NAME}-{whose}", PolicyName=whose)
        return answer["PolicyDocument"]
