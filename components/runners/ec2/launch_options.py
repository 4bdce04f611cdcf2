"""Launch options of every EC2 machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

METADATA: dict[str, Any] = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
    "instance_metadata_tags": "disabled",
}
"""IMDSv2 only. A container is one hop further away than the machine, so it cannot reach the machine's credentials."""

FAST: dict[str, Any] = {"iops": 6000, "throughput": 500}
"""Options of a gp3 volume: twice the default operations per second, and four times the default MiB/s."""


def security_group(
    name: str, description: str, vpc: str, tags: Mapping[str, str], opts: pulumi.ResourceOptions
) -> aws.ec2.SecurityGroup:
    """Declare a security group. Another VPC's is there before the former one is deleted.

    AWS does not delete a group while a machine is in it, and takes a name once for each VPC. The plugin would delete
    the former group first, and wait 15 minutes in vain.
    """
    opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=False))
    return aws.ec2.SecurityGroup(name, name=name, description=description, vpc_id=vpc, tags=tags, opts=opts)
