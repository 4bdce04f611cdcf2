"""The Auto Scaling groups of EC2 runners, under Pulumi's mocks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi.runtime.stack import wait_for_rpcs

from components.runners.ec2 import scaling_groups
from tests.fakes.pulumi_mocks import Recorder

ARGS: Any = SimpleNamespace(
    name="runners",
    config=SimpleNamespace(kinds=("spot", "on-demand"), max_runners=4, max_lifetime=7),
    site=SimpleNamespace(
        networks=[SimpleNamespace(subnet="subnet-1")], machines=[SimpleNamespace(name="g5.2xlarge")], reservations=[]
    ),
    efa=lambda _: 0,
    tags={},
)


def test_scaling_groups_end_no_machine_by_themselves() -> None:
    recorder = Recorder({})

    async def go() -> None:
        pulumi.runtime.set_mocks(recorder, project="slipway", stack="t")
        template = aws.ec2.LaunchTemplate("template")
        scaling_groups.scaling_groups(ARGS, {0: template}, pulumi.ResourceOptions())
        await wait_for_rpcs()

    asyncio.run(go())
    groups = recorder.of_type("aws:autoscaling/group:Group")
    assert sorted(groups) == ["runners-on-demand", "runners-spot"]
    for group in groups.values():
        assert group["protectFromScaleIn"] is True
        assert group["suspendedProcesses"] == ["AZRebalance", "ReplaceUnhealthy"]
