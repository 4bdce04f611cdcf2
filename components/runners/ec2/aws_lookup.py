"""Looks up every AWS resource that a configuration names. A preview does so too, and refuses what could not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import reservation_lookup
from containers.errors import SlipwayError, one_line
from stacks.checks.ec2_site import Builder, InstanceType, Network, Site
from stacks.config.builders import build_key
from stacks.config.ec2 import AMI_PARAMETER, ARCHITECTURES, Ec2RunnersConfig, PlatformBuildConfig


def look_up(
    config: Ec2RunnersConfig, platform: str, opts: pulumi.InvokeOptions, price_list: pulumi.InvokeOptions
) -> Site:
    """Look up the runners' types, networks, machine image and prices at AWS.

    ``platform`` is that of the runners, the first of the stack's images. ``opts`` have the provider of the runners'
    region, ``price_list`` that of a region with the price API.

    Raises SlipwayError: AWS has no such resource or does not answer; with AWS's reason.
    """
    networks = _networks(config, opts)
    vpc = config.vpc or (networks[0].vpc if networks else "")
    image, image_gb = _image(config.ami, platform, "ami", opts)
    return Site(
        machines=[_machine(name, opts) for name in config.instance_types],
        networks=networks,
        vpc=vpc,
        image=image.id,
        image_architecture=image.architecture,
        image_gb=image_gb,
        root_device=image.root_device_name,
        prices=_prices(config, networks, opts),
        on_demand_prices=_on_demand_prices(config, platform, price_list),
        builders=_builders(config, platform, image, opts),
        reservations=reservation_lookup.look_up(config.reservation, config.region) if config.reservation else (),
    )


def _builders(
    config: Ec2RunnersConfig, first: str, image: aws.ec2.GetAmiResult, opts: pulumi.InvokeOptions
) -> dict[str, Builder]:
    """Look up the builders by platform. That of the ``first`` one has the ``image`` of the runners."""
    builders = {}
    for platform, build in config.builders(first).items():
        key = build_key(platform, first)
        own = _image(build.ami, platform, f"{key}.ami", opts)[0] if isinstance(build, PlatformBuildConfig) else image
        machine = _machine(build.instance_type, opts, f"{key}.instanceType")
        builders[platform] = Builder(key, machine, own.id, own.architecture)
    return builders


def _machine(name: str, opts: pulumi.InvokeOptions, key: str = "instanceTypes") -> InstanceType:
    filters = [{"name": "instance-type", "values": [name]}]
    with _aws_errors(f"{key}: {name}"):
        response = aws.ec2.get_instance_type(instance_type=name, opts=opts)
        zones = aws.ec2.get_instance_type_offerings(location_type="availability-zone", filters=filters, opts=opts)
        return InstanceType(
            name=name,
            architectures=tuple(response.supported_architectures),
            gpus=sum(gpu.count for gpu in response.gpuses if gpu.manufacturer == "NVIDIA"),
            efa=(response.efa_maximum_interfaces or 0) if response.efa_supported else 0,
            cards=response.maximum_network_cards,
            disks=sum(disk.count for disk in response.instance_disks),
            cluster="cluster" in response.supported_placement_strategies,
            spot="spot" in response.supported_usages_classes,
            zones=tuple(sorted(zones.locations)),
        )


def _networks(config: Ec2RunnersConfig, opts: pulumi.InvokeOptions) -> list[Network]:
    ids = list(config.subnets)
    if not ids:
        with _aws_errors("vpc"):
            vpc = config.vpc or aws.ec2.get_vpc(default=True, opts=opts).id
            filters = [{"name": "vpc-id", "values": [vpc]}]
            ids = sorted(aws.ec2.get_subnets(filters=filters, opts=opts).ids)
    networks = []
    for name in ids:
        with _aws_errors(f"subnets: {name}"):
            subnet = aws.ec2.get_subnet(id=name, opts=opts)
        public = subnet.map_public_ip_on_launch
        networks.append(Network(subnet.id, subnet.vpc_id, subnet.availability_zone, subnet.cidr_block, public))
    return networks


def _image(ami: str | None, platform: str, key: str, opts: pulumi.InvokeOptions) -> tuple[aws.ec2.GetAmiResult, int]:
    """Return a machine image, the newest by default, and the size of its root volume in GiB."""
    if ami is None:
        parameter = AMI_PARAMETER.format(architecture=ARCHITECTURES[platform])
        with _aws_errors(f"{key}: {parameter}"):
            ami = aws.ssm.get_parameter(name=parameter, opts=opts).value
    with _aws_errors(f"{key}: {ami}"):
        # Whoever owns it: an image may be shared with the account.
        image = aws.ec2.get_ami(filters=[{"name": "image-id", "values": [ami]}], opts=opts)
        volumes = {mapping.device_name: mapping.ebs for mapping in image.block_device_mappings}
        if image.root_device_name not in volumes:
            raise SlipwayError("has no root volume on EBS; take an image that has one")
        return image, int(volumes[image.root_device_name].get("volume_size") or 0)


def _prices(config: Ec2RunnersConfig, networks: list[Network], opts: pulumi.InvokeOptions) -> dict[str, float]:
    """Return the spot price of each type in the first zone, in US dollars per hour; types without one are left out."""
    if "spot" not in config.kinds or not networks:
        return {}
    prices = {}
    for name in config.instance_types:
        with suppress(Exception):  # prices are for information: the stack deploys without them
            response = aws.ec2.get_spot_price(
                instance_type=name,
                availability_zone=networks[0].zone,
                filters=[{"name": "product-description", "values": ["Linux/UNIX"]}],
                opts=opts,
            )
            prices[name] = float(response.spot_price)
    return prices


def _on_demand_prices(config: Ec2RunnersConfig, platform: str, opts: pulumi.InvokeOptions) -> dict[str, float]:
    """Return the list price of each type, builders' too, in US dollars per hour; types without one are left out."""
    offer = {
        "regionCode": config.region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    prices = {}
    builders = (build.instance_type for build in config.builders(platform).values())
    for name in dict.fromkeys((*config.instance_types, *builders)):
        fields = {"instanceType": name, **offer}
        with suppress(Exception):  # as above
            response = aws.pricing.get_product(
                service_code="AmazonEC2",
                filters=[{"field": field, "value": value} for field, value in fields.items()],
                opts=opts,
            )
            (term,) = json.loads(response.result)["terms"]["OnDemand"].values()
            (price,) = term["priceDimensions"].values()
            prices[name] = float(price["pricePerUnit"]["USD"])
    return prices


@contextmanager
def _aws_errors(key: str) -> Iterator[None]:
    """Turn the SDK's exception, or one of an answer of another shape, into a line; ``key`` is below slipway:runners."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"AWS's answer has another shape than documented: {type(error).__name__}"
        raise SlipwayError(f"slipway:runners.{key}: {one_line(reason, 400)}") from None
    except Exception as error:
        reason = " ".join(str(error).rpartition("returned an error: ")[2].split())
        raise SlipwayError(f"slipway:runners.{key}: {one_line(reason, 400)}") from None
