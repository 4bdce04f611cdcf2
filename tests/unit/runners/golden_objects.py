"""What runners declare in a cluster and at AWS, in a form to keep in git: ``golden_objects.json``, and the command that writes it.

``python -m tests.unit.runners.golden_objects`` brings the file up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from components.runners.ec2 import ec2_deployment
from components.runners.ec2.builder import ssh_config
from stacks.checks.ec2_site import Builder, InstanceType, Network, Site
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.stack_file import ROOT
from tests.fakes.pulumi_mocks import SECRET, Recorder, run

FILE = Path(__file__).with_suffix(".json")
GITHUB = {"url": "https://github.com/acme", "secret": "github"}
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:slipway/github-AbCdE"
CASES: Mapping[str, Mapping[str, Any]] = {
    "docker": {
        "kind": "kubernetes",
        "profile": "eks-p5",
        "github": GITHUB,
        "build": {},
        "validation": {"image": "r.example/y:1", "command": ["/checks/gpu"]},
    },
    "rootless": {
        "kind": "kubernetes",
        "profile": "aks-ndv5",
        "github": GITHUB,
        "build": {"rootless": True, "jobs": True, "service": "LoadBalancer"},
        "daemon": False,
    },
    "jobPods": {
        "kind": "kubernetes",
        "profile": "aks-ndv5",
        "gpus": 2,
        "github": GITHUB,
        "jobPods": True,
        "memory": "400Gi",
    },
    "replicas": {
        "kind": "kubernetes",
        "github": GITHUB,
        "build": {
            "replicas": 3,
            "service": "LoadBalancer",
            "address": [f"b{number}.example:2376" for number in range(3)],
            "platforms": {
                "linux/arm64": {
                    "address": "arm.example:2376",
                    "nodeSelector": {"acme.example/pool": "arm"},
                    "tolerations": [{"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"}],
                },
            },
        },
    },
    "ec2": {
        "kind": "ec2",
        "region": "eu-west-1",
        "account": "123456789012",
        "github": {"url": "https://github.com/acme", "secret": f"{ARN}f", "webhookSecret": f"{ARN}w"},
        "labels": ["gpu"],
        "instanceTypes": ["p5.48xlarge"],
        "efa": "all",
        "subnets": ["subnet-0123456789abcdef0"],
        "alarm": {"topic": "arn:aws:sns:eu-west-1:123456789012:alarms"},
        "endpoints": True,
        "build": {"instanceType": "m7i.4xlarge"},
    },
    "ec2 that listens": {
        "kind": "ec2",
        "region": "eu-west-1",
        "account": "123456789012",
        "github": {"url": "https://github.com/acme", "secret": f"{ARN}f"},
        "labels": ["gpu"],
        "instanceTypes": ["p5.48xlarge"],
        "build": {"instanceType": "m7i.4xlarge"},
    },
    "ec2 with sets": {
        "kind": "ec2",
        "region": "eu-west-1",
        "account": "123456789012",
        "github": {"url": "https://github.com/acme", "secret": f"{ARN}f"},
        "instanceTypes": ["p5.48xlarge"],
        "sets": {
            "one": {"labels": ["h100"], "maxRunners": 9},
            "all": {"efa": "all", "subnets": ["subnet-0123456789abcdef0"], "spot": False, "groupId": 7},
        },
    },
}
"""In a cluster: a daemon in each pod, none, and jobs in pods of their own; each kind of build service: one for jobs, one with replicas and a
pool of another platform. At AWS: all there is,
with the webhook of an old stack; none of that; and several sets."""
_ZONES = ("eu-west-1a", "eu-west-1b")
SITE = Site(
    machines=[InstanceType("p5.48xlarge", ("x86_64",), 8, 32, 32, 8, cluster=True, spot=True, zones=_ZONES)],
    networks=[Network("subnet-0123456789abcdef0", "vpc-1", "eu-west-1a", "10.0.0.0/24", public=False)],
    vpc="vpc-1",
    image="ami-1",
    image_architecture="x86_64",
    image_gb=60,
    root_device="/dev/sda1",
    prices={},
    on_demand_prices={},
    builders={
        "linux/amd64": Builder(
            "build",
            InstanceType("m7i.4xlarge", ("x86_64",), 0, 0, 1, 0, cluster=True, spot=True, zones=_ZONES),
            "ami-1",
            "x86_64",
        )
    },
)
"""What AWS answers."""
CHANGING = {"slipway/certificate", "version", "code", "userData"}
"""Keys of a new certificate's digest, of charts' versions, and of files with tests of their own."""

Golden = Mapping[str, Mapping[str, Any]]
"""By case, and by type and name: the inputs, without secrets and those of CHANGING."""


def golden_objects() -> Golden:
    """Return what the cases declare."""
    return {case: _declared(values) for case, values in CASES.items()}


def read() -> Golden:
    """Return the kept objects."""
    golden: Golden = json.loads(FILE.read_text(encoding="utf-8"))
    return golden


def text(golden: Golden) -> str:
    """Return the objects as JSON with a line for each, so that git shows which ones change."""
    cases = [
        f"{json.dumps(case)}: {{"
        + ",".join(f"\n  {json.dumps(name)}: {json.dumps(inputs, sort_keys=True)}" for name, inputs in objects.items())
        + "}"
        for case, objects in golden.items()
    ]
    return "{\n" + ",\n".join(cases) + "\n}\n"


def _look_up(config: Ec2RunnersConfig, *_: object) -> Site:
    return SITE if config.build else replace(SITE, builders={})


def recorded(runners: Mapping[str, Any], **config: Any) -> Recorder:
    """Return what a stack with runners declares, of EC2 at :data:`SITE`."""
    with patch.object(ec2_deployment, "look_up", _look_up), patch.object(ssh_config, "write"):
        return run(runners=runners, **config)[0]


def _declared(values: Mapping[str, Any]) -> dict[str, Any]:
    recorder = recorded(values, chain={})
    return {
        f"{typ.rpartition(':')[2]} {name}": json.loads(json.dumps(_public(inputs)))
        for (typ, name), inputs in sorted(recorder.resources.items())
        if typ.startswith(("aws:", "kubernetes:"))
    }


def _public(value: Any) -> Any:
    match value:
        case {"image": str(image), **rest}:
            return {"image": image.rpartition(":")[0], **_public(rest)}
        case dict():
            return SECRET if SECRET in value else {k: _public(item) for k, item in value.items() if k not in CHANGING}
        case list():
            return [_public(item) for item in value]
        case _:
            return value


if __name__ == "__main__":
    FILE.write_text(text(golden_objects()), encoding="utf-8")
    sys.stdout.write(f"{FILE.relative_to(ROOT)}: written\n")
