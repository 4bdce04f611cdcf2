"""VPC endpoints of the AWS services that a runner calls."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import launch_options
from components.runners.ec2.runner_args import Ec2RunnersArgs

_SERVICES = ("ssm", "ssmmessages", "ec2messages", "ecr.api", "ecr.dkr", "logs")
"""The services that a machine calls. S3, which holds ECR's layers, has a gateway that the VPC may already have."""


def declare_endpoints(args: Ec2RunnersArgs, opts: pulumi.ResourceOptions) -> None:
    """Declare the endpoints by which a machine reaches AWS without the internet. GitHub still needs a way out."""
    name = f"{args.name}-endpoints"
    group = aws.ec2.SecurityGroup(
        name,
        name=name,
        description="Endpoints of AWS for Slipway's runners",
        vpc_id=args.site.vpc,
        tags=args.tags,
        opts=launch_options.created_first(opts),
    )
    for cidr in sorted({network.cidr for network in args.site.networks}):
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-{cidr}",
            security_group_id=group.id,
            cidr_ipv4=cidr,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=opts,
        )
    for service in _SERVICES:
        aws.ec2.VpcEndpoint(
            f"{args.name}-{service}",
            vpc_id=args.site.vpc,
            service_name=f"com.amazonaws.{args.config.region}.{service}",
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            # AWS takes one subnet per zone.
            subnet_ids=list({network.zone: network.subnet for network in args.site.networks}.values()),
            security_group_ids=[group.id],
            tags=args.tags,
            opts=opts,
        )
