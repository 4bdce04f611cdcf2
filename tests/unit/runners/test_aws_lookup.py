"""What is asked of AWS about a configuration of EC2 runners, and how its refusals read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from components.runners.ec2 import aws_lookup
from containers.errors import SlipwayError
from stacks.checks.ec2_site import InstanceType, Network
from tests.helpers.every import every


@every("vpc, used", [("vpc-own", "vpc-own"), (None, "vpc-default")])
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


def test_machine_has_what_aws_says_of_its_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS lists the offerings of all types in all kinds of places, unless it is asked for those of one."""
    kinds = {
        "a1.x": SimpleNamespace(
            supported_architectures=["x86_64"],
            gpuses=[SimpleNamespace(count=8, manufacturer="NVIDIA"), SimpleNamespace(count=2, manufacturer="AMD")],
            efa_supported=True,
            efa_maximum_interfaces=32,
            maximum_network_cards=32,
            instance_disks=[SimpleNamespace(count=8), SimpleNamespace(count=1)],
            supported_placement_strategies=["cluster", "spread"],
            supported_usages_classes=["on-demand", "spot"],
        ),
        "b1.x": SimpleNamespace(
            supported_architectures=["arm64"],
            gpuses=[],
            efa_supported=False,
            efa_maximum_interfaces=4,
            maximum_network_cards=1,
            instance_disks=[],
            supported_placement_strategies=["spread"],
            supported_usages_classes=["on-demand"],
        ),
    }
    places = {
        "availability-zone": {"a1.x": ["z-c", "z-a"], "b1.x": ["z-b"]},
        "region": {"a1.x": ["z"], "b1.x": ["z"]},
    }

    def offerings(location_type: str, filters: list[dict[str, Any]], opts: object) -> Any:  # noqa: ARG001 - as above
        kept = {each["name"]: each["values"] for each in filters}.get("instance-type", [*kinds])
        return SimpleNamespace(locations=[zone for kind in kept for zone in places[location_type][kind]])

    monkeypatch.setattr(aws.ec2, "get_instance_type", lambda instance_type, opts: kinds[instance_type])  # noqa: ARG005
    monkeypatch.setattr(aws.ec2, "get_instance_type_offerings", offerings)
    assert [aws_lookup._machine(name, pulumi.InvokeOptions()) for name in kinds] == [
        InstanceType("a1.x", ("x86_64",), 8, 32, 32, 9, cluster=True, spot=True, zones=("z-a", "z-c")),
        InstanceType("b1.x", ("arm64",), 0, 0, 1, 0, cluster=False, spot=False, zones=("z-b",)),
    ]


def test_prices_are_those_of_a_type_and_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type without a price is left out, and does not keep the others from having one."""
    asked: list[dict[str, Any]] = []

    def spot(instance_type: str, **given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(spot_price="1.25" if instance_type == "a1.x" else None)

    def product(service_code: str, filters: list[dict[str, str]], opts: object) -> Any:  # noqa: ARG001 - as above
        fields = {each["field"]: each["value"] for each in filters}
        asked.append({"service_code": service_code, **fields})
        price = {"priceDimensions": {"d": {"pricePerUnit": {"USD": "3.5"}}}}
        terms = {} if fields["instanceType"] == "b1.x" else {"t": price}
        return SimpleNamespace(result=json.dumps({"terms": {"OnDemand": terms}}))

    monkeypatch.setattr(aws.ec2, "get_spot_price", spot)
    monkeypatch.setattr(aws.pricing, "get_product", product)
    builders = {"linux/arm64": SimpleNamespace(instance_type="c1.x")}
    config: Any = SimpleNamespace(
        kinds=("spot",), instance_types=("b1.x", "a1.x"), region="eu-west-1", builders=lambda _: builders
    )
    options, networks = pulumi.InvokeOptions(), [Network("s", "v", "z-a", "10.0.0.0/24", public=False)]
    assert aws_lookup._prices(config, networks, options) == {"a1.x": 1.25}
    linux = [{"name": "product-description", "values": ["Linux/UNIX"]}]
    assert asked == [{"availability_zone": "z-a", "filters": linux, "opts": options}] * 2
    asked.clear()
    assert aws_lookup._on_demand_prices(config, "linux/amd64", options) == {"a1.x": 3.5, "c1.x": 3.5}
    kind = {"operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}
    where = {"service_code": "AmazonEC2", "regionCode": "eu-west-1", "marketoption": "OnDemand"}
    assert asked == [{"instanceType": name, **kind, **where} for name in ("b1.x", "a1.x", "c1.x")]
    config.kinds = ("on-demand",)
    assert aws_lookup._prices(config, networks, options) == {}


def test_aws_refusal_is_one_line_with_its_reason_alone() -> None:
    with pytest.raises(SlipwayError) as caught, aws_lookup._aws_errors("image: ami-1"):
        raise RuntimeError("invoking x: returned an error: no such\n  image")
    assert str(caught.value) == "slipway:runners.image: ami-1: no such image"
