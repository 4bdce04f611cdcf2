"""The runners' machines: security group, launch templates, and an Auto Scaling group per kind of capacity."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import launch_options
from components.runners.ec2.runner_args import Ec2RunnersArgs
from stacks.checks.ec2_site import InstanceType
from stacks.checks.reservations import Reservation

LEAVE_HOOK = "leave"
"""The lifecycle hook in which a machine waits for the end of its job."""

_HEARTBEAT = 30 * 60
"""Seconds that a leaving machine is kept without a heartbeat. The keeper sends one each minute, if Lambda runs it.

A machine is kept for 48 hours in all, or 100 times as long as this, whichever is less (LifecycleHook, GlobalTimeout).
"""

Templates = Mapping[int | str, aws.ec2.LaunchTemplate]
"""Launch templates by number of EFA interfaces, and those of reservations by the reservation's id."""


def security_group(args: Ec2RunnersArgs, opts: pulumi.ResourceOptions) -> aws.ec2.SecurityGroup:
    """Declare a security group that lets nothing in. With EFA, all traffic between the machines passes both ways.

    "An EFA requires a security group that allows all inbound and outbound traffic to and from the security group
    itself" (EC2 user guide, "Get started with EFA and NCCL").
    """
    name = f"{args.name}-runner"
    description = "GitHub Actions runners of Slipway: nothing comes in"
    group = launch_options.security_group(name, description, args.site.vpc, args.tags, opts)
    rule = {"security_group_id": group.id, "ip_protocol": "-1", "opts": opts}
    aws.vpc.SecurityGroupEgressRule(f"{name}-out", cidr_ipv4="0.0.0.0/0", **rule)
    if any(own.efa for own in args.config.all_sets):
        aws.vpc.SecurityGroupEgressRule(f"{name}-efa", referenced_security_group_id=group.id, **rule)
        aws.vpc.SecurityGroupIngressRule(f"{name}-efa", referenced_security_group_id=group.id, **rule)
    return group


def launch_templates(
    args: Ec2RunnersArgs, group: aws.ec2.SecurityGroup, profile: aws.iam.InstanceProfile, opts: pulumi.ResourceOptions
) -> Templates:
    """Declare a launch template for each number of EFA interfaces among the types, and for each reservation."""
    config, types = args.config, {machine.name: machine for machine in args.site.machines}
    templates: dict[int | str, aws.ec2.LaunchTemplate] = {}
    for reservation in args.site.reservations:
        machine = types[reservation.instance_type]
        options = _in_reservation(reservation)
        templates[reservation.id] = _template(args, reservation.id, machine, (group, profile), options, opts)
    if not config.kinds:
        return templates
    placement: dict[str, Any] = {}
    if config.efa:
        cluster = aws.ec2.PlacementGroup(args.name, name=args.name, strategy="cluster", tags=args.tags, opts=opts)
        placement = {"placement": {"group_name": cluster.name}}
    for machine in args.site.machines:
        efa = args.efa(machine)
        if efa not in templates:
            templates[efa] = _template(args, f"efa-{efa}" if efa else "", machine, (group, profile), placement, opts)
    return templates


def _in_reservation(reservation: Reservation) -> dict[str, Any]:
    """Return the options of a template whose machines are in a reservation, and in no other."""
    return {
        "capacity_reservation_specification": {
            "capacity_reservation_target": {"capacity_reservation_id": reservation.id}
        },
        # "You must specify MarketType capacity-block" (Auto Scaling user guide, "Use Capacity Blocks").
        **({"instance_market_options": {"market_type": "capacity-block"}} if reservation.block else {}),
        **({"placement": {"group_name": reservation.placement_group}} if reservation.placement_group else {}),
    }


def _template(
    args: Ec2RunnersArgs,
    ending: str,
    machine: InstanceType,
    identity: tuple[aws.ec2.SecurityGroup, aws.iam.InstanceProfile],
    options: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
) -> aws.ec2.LaunchTemplate:
    """Declare a launch template of an instance type, with a name of this ending and further options."""
    group, profile = identity
    name = f"{args.name}-{ending}" if ending else args.name
    return aws.ec2.LaunchTemplate(
        name,
        name=name,
        image_id=args.site.image,
        instance_type=machine.name,
        instance_initiated_shutdown_behavior="terminate",
        ebs_optimized="true",
        iam_instance_profile={"arn": profile.arn},
        user_data=base64.b64encode(args.user_data[args.efa(machine)].encode()).decode(),
        update_default_version=True,
        metadata_options=launch_options.METADATA,
        block_device_mappings=[
            {
                "device_name": args.site.root_device,
                "ebs": {
                    "volume_size": args.config.root,
                    "volume_type": "gp3",
                    **launch_options.FAST,
                    "encrypted": "true",
                    "delete_on_termination": "true",
                },
            }
        ],
        network_interfaces=[
            {
                "network_card_index": card,
                "device_index": device,
                "interface_type": kind,
                "security_groups": [group.id],
                "delete_on_termination": "true",
            }
            for card, device, kind in machine.interfaces(args.config.efa)
        ],
        tag_specifications=[
            {"resource_type": kind, "tags": {**args.tags, "Name": f"{args.name}-runner"}}
            for kind in ("instance", "volume", "network-interface")
        ],
        **options,
        tags=args.tags,
        opts=opts,
    )


def scaling_groups(
    args: Ec2RunnersArgs, templates: Templates, opts: pulumi.ResourceOptions
) -> dict[str, aws.autoscaling.Group]:
    """Declare a group for each reservation and kind of capacity: a group does not turn from one to another by itself.

    They are tried in this order.
    """
    networks, most = args.site.networks, args.config.max_runners
    reserved = {
        each.id: _group(
            args,
            each.id,
            # A group with several types or kinds of capacity cannot have a Capacity Block (Auto Scaling user guide).
            {
                "launch_template": _newest(templates[each.id], "id"),
                "vpc_zone_identifiers": [network.subnet for network in networks if network.zone == each.zone],
                "max_size": min(most, each.count),
            },
            opts,
        )
        for each in args.site.reservations
    }
    others = {
        kind: _group(
            args,
            kind,
            {
                "mixed_instances_policy": _mixed(args, kind, templates),
                "vpc_zone_identifiers": [network.subnet for network in networks],
                "max_size": most,
                "capacity_rebalance": kind == "spot",
            },
            opts,
        )
        for kind in args.config.kinds
    }
    return {**reserved, **others}


def _mixed(args: Ec2RunnersArgs, kind: str, templates: Templates) -> dict[str, Any]:
    """Return the policy of a group of all types with spot or on-demand machines."""
    return {
        "instances_distribution": {
            "on_demand_base_capacity": 0,
            "on_demand_percentage_above_base_capacity": 0 if kind == "spot" else 100,
            "on_demand_allocation_strategy": "prioritized",
            "spot_allocation_strategy": "price-capacity-optimized",
        },
        "launch_template": {
            "launch_template_specification": _newest(templates[args.efa(args.site.machines[0])]),
            "overrides": [
                {"instance_type": machine.name, "launch_template_specification": _newest(templates[args.efa(machine)])}
                for machine in args.site.machines
            ],
        },
    }


def _group(
    args: Ec2RunnersArgs, kind: str, machines: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> aws.autoscaling.Group:
    """Declare a group of machines of a kind, and its hook."""
    name = group_name(args, kind)
    group = aws.autoscaling.Group(
        name,
        name=name,
        min_size=0,
        # Only the keeper changes the number of machines and picks those that end. Auto Scaling ends none, neither to
        # shrink the group nor to balance its zones.
        protect_from_scale_in=True,
        # Nor does it put a new machine in the place of one that has ended itself ("Auto Scaling stops replacing
        # instances that are marked as unhealthy", "How suspended processes affect other processes"). The keeper does,
        # if a job waits.
        suspended_processes=["AZRebalance", "ReplaceUnhealthy"],
        max_instance_lifetime=args.config.max_lifetime * 24 * 3600,
        health_check_type="EC2",
        health_check_grace_period=0,
        wait_for_capacity_timeout="0",
        force_delete=True,
        **machines,
        tags=[{"key": key, "value": value, "propagate_at_launch": True} for key, value in args.tags.items()],
        opts=opts,
    )
    aws.autoscaling.LifecycleHook(
        f"{name}-leave",
        name=LEAVE_HOOK,
        autoscaling_group_name=group.name,
        lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
        heartbeat_timeout=_HEARTBEAT,
        default_result="CONTINUE",
        opts=opts,
    )
    return group


def group_name(args: Ec2RunnersArgs, kind: str) -> str:
    """Return the name of the group of a kind of capacity."""
    return f"{args.name}-{kind}"


def _newest(template: aws.ec2.LaunchTemplate, key: str = "launch_template_id") -> dict[str, Any]:
    """Return a template's newest version by number, so that a new version changes the group."""
    return {key: template.id, "version": template.latest_version.apply(str)}
