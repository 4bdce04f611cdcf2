"""What is asked of AWS about a configuration of EC2 runners, and how its refusals read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from components.runners.ec2 import aws_lookup
from containers.errors import SlipwayError
from stacks.checks.ec2_site import Network


@pytest.mark.parametrize(("vpc", "used"), [("vpc-own", "vpc-own"), (None, "vpc-default")])
def test_networks_without_subnets_are_those_of_the_vpc(
    vpc: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def subnets(filters: Any, opts: object) -> Any:  # noqa: ARG001 - as the SDK has it
        return SimpleNamespace(ids=[f"b-{filters[0]['values'][0]}", "a"])

    def subnet(id: str, opts: object) -> Any:  # noqa: A002, ARG001 - as the SDK has it
        return SimpleNamespace(
            id=id, vpc_id=used, availability_zone="z", cidr_block="10.0.0.0/24", map_public_ip_on_launch=False
        )

    monkeypatch.setattr(aws.ec2, "get_vpc", lambda **_: SimpleNamespace(id="vpc-default"))
    monkeypatch.setattr(aws.ec2, "get_subnets", subnets)
    monkeypatch.setattr(aws.ec2, "get_subnet", subnet)
    config: Any = SimpleNamespace(subnets=(), vpc=vpc)
    assert aws_lookup._networks(config, pulumi.InvokeOptions()) == [
        Network(name, used, "z", "10.0.0.0/24", public=False) for name in ("a", f"b-{used}")
    ]


def test_aws_refusal_is_one_line_with_its_reason_alone() -> None:
    with pytest.raises(SlipwayError) as caught, aws_lookup._aws_errors("image: ami-1"):
        raise RuntimeError("invoking x: returned an error: no such\n  image")
    assert str(caught.value) == "slipway:runners.image: ami-1: no such image"
