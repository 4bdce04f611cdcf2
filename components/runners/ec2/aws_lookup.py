"""What AWS says of all that a configuration names: asked at preview, so that what could not run is refused there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pulumi
import pulumi_aws as aws

from stacks.checks.ec2_site import Machine, Network, Site
from stacks.config.ec2 import AMI_PARAMETER, ARCHITECTURES, Ec2Runners
from stacks.errors import SlipwayError


def survey(config: Ec2Runners, platform: str, opts: pulumi.InvokeOptions, price_list: pulumi.InvokeOptions) -> Site:
    """Ask AWS.

    Args:
        config: what is asked for.
        platform: of the stack's images.
        opts: who is asked.
        price_list: who is asked for prices, in a region that knows them.

    Raises:
        SlipwayError: AWS knows no such thing, or does not answer; in its own words.
    """
    networks = _networks(config, opts)
    vpc = config.vpc or (networks[0].vpc if networks else "")
    image = _image(config, platform, opts)
    root = next((m for m in image.block_device_mappings if m.device_name == image.root_device_name), None)
    if root is None:
        raise SlipwayError(f"slipway:runners.image: {image.id}: has no root volume on EBS; take an image that has one")
    build = config.build.instance_type if config.build else None
    return Site(
        machines=[_machine(name, opts) for name in config.instance_types],
        networks=networks,
        vpc=vpc,
        image=image.id,
        image_architecture=image.architecture,
        image_gb=int(root.ebs.get("volume_size") or 0),
        root_device=image.root_device_name,
        prices=_prices(config, networks, opts),
        on_demand_prices=_on_demand_prices(config, price_list),
        builder=_machine(build, opts, "build.instanceType") if build else None,
    )


def _machine(name: str, opts: pulumi.InvokeOptions, key: str = "instanceTypes") -> Machine:
    filters = [{"name": "instance-type", "values": [name]}]
    with _said(f"{key}: {name}"):
        found = aws.ec2.get_instance_type(instance_type=name, opts=opts)
        zones = aws.ec2.get_instance_type_offerings(location_type="availability-zone", filters=filters, opts=opts)
    return Machine(
        name=name,
        architectures=tuple(found.supported_architectures),
        gpus=sum(gpu.count for gpu in found.gpuses if gpu.manufacturer == "NVIDIA"),
        efa=found.efa_maximum_interfaces if found.efa_supported else 0,
        cards=found.maximum_network_cards,
        disks=sum(disk.count for disk in found.instance_disks),
        cluster="cluster" in found.supported_placement_strategies,
        spot="spot" in found.supported_usages_classes,
        zones=tuple(sorted(zones.locations)),
    )


def _networks(config: Ec2Runners, opts: pulumi.InvokeOptions) -> list[Network]:
    ids = list(config.subnets)
    if not ids:
        with _said("vpc"):
            vpc = config.vpc or aws.ec2.get_vpc(default=True, opts=opts).id
            filters = [{"name": "vpc-id", "values": [vpc]}]
            ids = sorted(aws.ec2.get_subnets(filters=filters, opts=opts).ids)
    found = []
    for subnet in ids:
        with _said(f"subnets: {subnet}"):
            said = aws.ec2.get_subnet(id=subnet, opts=opts)
        found.append(
            Network(said.id, said.vpc_id, said.availability_zone, said.cidr_block, said.map_public_ip_on_launch)
        )
    return found


def _image(config: Ec2Runners, platform: str, opts: pulumi.InvokeOptions) -> aws.ec2.GetAmiResult:
    ami = config.image
    if ami is None:
        parameter = AMI_PARAMETER.format(architecture=ARCHITECTURES[platform])
        with _said(f"image: {parameter}"):
            ami = aws.ssm.get_parameter(name=parameter, opts=opts).value
    with _said(f"image: {ami}"):
        # Not the owner's own alone: an image may be shared with an account.
        return aws.ec2.get_ami(filters=[{"name": "image-id", "values": [ami]}], opts=opts)


def _prices(config: Ec2Runners, networks: list[Network], opts: pulumi.InvokeOptions) -> dict[str, float]:
    """Return the spot price of each type in the first zone, in US dollars per hour; a type without one is left out."""
    if not config.spot or not networks:
        return {}
    found = {}
    for name in config.instance_types:
        with suppress(Exception):  # for information: what it costs must not keep a stack from being deployed
            said = aws.ec2.get_spot_price(
                instance_type=name,
                availability_zone=networks[0].zone,
                filters=[{"name": "product-description", "values": ["Linux/UNIX"]}],
                opts=opts,
            )
            found[name] = float(said.spot_price)
    return found


def _on_demand_prices(config: Ec2Runners, opts: pulumi.InvokeOptions) -> dict[str, float]:
    """Return the list price of each type, the builder's too, in US dollars per hour; a type without is left out."""
    wanted = {
        "regionCode": config.region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    found = {}
    for name in (*config.instance_types, *([config.build.instance_type] if config.build else [])):
        fields = {"instanceType": name, **wanted}
        with suppress(Exception):  # likewise
            said = aws.pricing.get_product(
                service_code="AmazonEC2",
                filters=[{"field": field, "value": value} for field, value in fields.items()],
                opts=opts,
            )
            (term,) = json.loads(said.result)["terms"]["OnDemand"].values()
            (price,) = term["priceDimensions"].values()
            found[name] = float(price["pricePerUnit"]["USD"])
    return found


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Turn the SDK's exception for what AWS answered into one line."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).rpartition("returned an error: ")[2].split())
        raise SlipwayError(f"slipway:runners.{what}: {said}") from None
