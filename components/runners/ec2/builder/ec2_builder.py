"""``Ec2Builder``: one machine that builds a platform's images, on a lasting volume."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_docker as docker

from components import provider_arguments
from components.reached_engine import ReachedEngine
from components.runners.ec2 import iam_policies, launch_options
from components.runners.ec2.builder import ssh_config
from components.runners.ec2.builder.power import Asleep, Awake, PowerArgs
from components.runners.ec2.user_data import builder_user_data
from stacks.checks.ec2_site import Network
from stacks.config.ec2 import BuildMachineConfig

_DEVICE = "/dev/sdf"
"""The volume's device name at EC2. The machine finds the volume by its id instead."""


@dataclass(frozen=True, kw_only=True)
class Ec2BuilderArgs:
    """What :class:`Ec2Builder` consists of.

    ``name`` is the name of every resource, and ``stack`` their tag, which all resources of the stack have. ``image`` is
    the machine image: ``pinned`` by the configuration, or else today's newest. ``network`` is the subnet and zone of
    machine and volume.
    ``boundary`` is the ARN of the policy that bounds its role.
    """

    name: str
    stack: str
    region: str
    build: BuildMachineConfig
    image: str
    pinned: bool
    network: Network
    provider: aws.Provider
    boundary: str | None = None


class Ec2Builder(pulumi.ComponentResource):
    """The machine, its volume, its role for Session Manager alone, and a security group that lets nothing in."""

    instance: pulumi.Output[str]
    """The machine's id."""

    volume: pulumi.Output[str]
    """The volume's id."""

    def __init__(self, name: str, args: Ec2BuilderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:runners:Ec2Builder", name, {}, opts)
        self._name, self._args = name, args
        self._opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        self._tags = {"slipway": args.stack, "Name": args.name}
        volume = aws.ebs.Volume(
            args.name,
            availability_zone=args.network.zone,
            size=args.build.cache,
            type="gp3",
            encrypted=True,
            tags=self._tags,
            opts=self._opts,
            **launch_options.FAST,
        )
        machine = self._machine(volume)
        # A volume is attached to one machine at a time.
        replaced_first = pulumi.ResourceOptions(delete_before_replace=True)
        self._attached = aws.ec2.VolumeAttachment(
            args.name,
            device_name=_DEVICE,
            instance_id=machine.id,
            volume_id=volume.id,
            stop_instance_before_detaching=True,
            opts=pulumi.ResourceOptions.merge(self._opts, replaced_first),
        )
        self.instance, self.volume = machine.id, volume.id
        self.register_outputs({"instance": self.instance, "volume": self.volume})

    def _machine(self, volume: aws.ebs.Volume) -> aws.ec2.Instance:
        args = self._args
        role = aws.iam.Role(
            args.name,
            name=args.name,
            assume_role_policy=json.dumps(iam_policies.trust("ec2.amazonaws.com")),
            permissions_boundary=args.boundary,
            tags=self._tags,
            opts=self._opts,
        )
        allowed = aws.iam.RolePolicy(
            args.name, name="builder", role=role.name, policy=json.dumps(iam_policies.builder()), opts=self._opts
        )
        profile = aws.iam.InstanceProfile(args.name, name=args.name, role=role.name, opts=self._opts)
        description = "Builder of Slipway: nothing comes in"
        group = launch_options.security_group(args.name, description, args.network.vpc, self._tags, self._opts)
        aws.vpc.SecurityGroupEgressRule(
            f"{args.name}-out", cidr_ipv4="0.0.0.0/0", security_group_id=group.id, ip_protocol="-1", opts=self._opts
        )
        lifecycle = pulumi.ResourceOptions(
            depends_on=[allowed],
            delete_before_replace=True,
            # The root volume of a machine from before has no tags, and who deploys may tag what is ours alone. AWS
            # publishes an image each week: only a pinned one replaces the machine.
            ignore_changes=["volumeTags", *([] if args.pinned else ["ami"])],
            # Else its network interface would move to the other group. Who may do that may move any machine's: AWS
            # knows no tag of an interface that a machine came with.
            replace_on_changes=["vpcSecurityGroupIds"],
        )
        return aws.ec2.Instance(
            args.name,
            ami=args.image,
            instance_type=args.build.instance_type,
            subnet_id=args.network.subnet,
            vpc_security_group_ids=[group.id],
            iam_instance_profile=profile.name,
            instance_initiated_shutdown_behavior="stop",
            ebs_optimized=True,
            metadata_options=launch_options.METADATA,
            root_block_device={
                "encrypted": True,
                "delete_on_termination": True,
                "volume_type": "gp3",
                **launch_options.FAST,
            },
            user_data=volume.id.apply(lambda known: builder_user_data(args.build, known)),
            user_data_replace_on_change=True,  # the machine reads it once
            tags=self._tags,
            # The root volume has them from its start. The plugin reads those of all volumes of the machine as one, so
            # the volume of the layers has the same.
            volume_tags=self._tags,
            opts=pulumi.ResourceOptions.merge(self._opts, lifecycle),
        )

    @property
    def reached_engine(self) -> ReachedEngine:
        """How this machine reaches the machine's Docker engine: a connection starts the machine."""
        return ReachedEngine(f"ssh://{ssh_config.HOST}", ssh=ssh_config.options(self._args.name))

    def engine(self, images: Mapping[str, str]) -> docker.Provider:
        """Start the machine and return it as a Docker engine; ``images`` are the tags to build."""
        awake = Awake(
            f"{self._name}-awake", self._power(images), pulumi.ResourceOptions(parent=self, depends_on=[self._attached])
        )
        arguments = {
            "host": self.reached_engine.host,
            "ssh_opts": self.reached_engine.ssh,
            "disable_docker_daemon_check": True,  # a preview needs no daemon
        }
        return docker.Provider(
            f"{self._name}-engine",
            **{**provider_arguments.of(docker.Provider), **arguments},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[awake]),
        )

    def stop_after(self, images: Mapping[str, pulumi.Input[str]], after: Sequence[pulumi.Resource]) -> None:
        """Stop the machine after the last image. ``images`` are tags and digests, ``after`` the images' resources."""
        options = pulumi.ResourceOptions(parent=self, depends_on=[self._attached, *after])
        Asleep(f"{self._name}-asleep", self._power(images), options)

    def _power(self, images: Mapping[str, pulumi.Input[str]]) -> PowerArgs:
        return PowerArgs(self._args.region, self._args.name, self.instance, images)

    @property
    def outputs(self) -> dict[str, Any]:
        """The stack's outputs of the builder."""
        ssh = f"ssh -F {ssh_config.config(self._args.name)} {ssh_config.HOST}"
        return {"instance": self.instance, "volume": self.volume, "connect": ssh}
