"""``Ec2Builder``: one machine that builds a stack's images, on a volume that outlives it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_docker as docker

from components.runners.ec2 import iam_policies, launch_options
from components.runners.ec2.builder import ssh_config
from components.runners.ec2.builder.power import Asleep, Awake, ShiftArgs
from components.runners.ec2.user_data import builder_user_data
from stacks.checks.ec2_site import Network
from stacks.config.ec2 import Ec2Build

_DEVICE = "/dev/sdf"
"""The volume's place as EC2 names it; the machine finds it by its id."""


@dataclass(frozen=True, kw_only=True)
class Ec2BuilderArgs:
    """What :class:`Ec2Builder` is made of.

    ``name`` is that of all resources; ``image`` the machine image, which is ``pinned`` or the newest of today;
    ``network`` says where machine and volume are.
    """

    name: str
    region: str
    build: Ec2Build
    image: str
    pinned: bool
    network: Network
    provider: aws.Provider


class Ec2Builder(pulumi.ComponentResource):
    """The machine, its volume, its role without rights, and a security group that lets nothing in."""

    instance: pulumi.Output[str]
    """The machine's id."""

    volume: pulumi.Output[str]
    """The volume's id."""

    def __init__(self, name: str, args: Ec2BuilderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:runners:Ec2Builder", name, {}, opts)
        self._name, self._args = name, args
        self._opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        self._tags = {"slipway": args.name.removesuffix("-builder"), "Name": args.name}
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
        # A volume is on one machine at a time.
        attached = pulumi.ResourceOptions(delete_before_replace=True)
        self._attached = aws.ec2.VolumeAttachment(
            args.name,
            device_name=_DEVICE,
            instance_id=machine.id,
            volume_id=volume.id,
            stop_instance_before_detaching=True,
            opts=pulumi.ResourceOptions.merge(self._opts, attached),
        )
        self.instance, self.volume = machine.id, volume.id
        self.register_outputs({"instance": self.instance, "volume": self.volume})

    def _machine(self, volume: aws.ebs.Volume) -> aws.ec2.Instance:
        args = self._args
        role = aws.iam.Role(
            args.name,
            name=args.name,
            assume_role_policy=json.dumps(iam_policies.trust("ec2.amazonaws.com")),
            tags=self._tags,
            opts=self._opts,
        )
        allowed = aws.iam.RolePolicy(
            args.name, name="builder", role=role.name, policy=json.dumps(iam_policies.builder()), opts=self._opts
        )
        profile = aws.iam.InstanceProfile(args.name, name=args.name, role=role.name, opts=self._opts)
        group = aws.ec2.SecurityGroup(
            args.name,
            name=args.name,
            description="Builder of Slipway: nothing comes in",
            vpc_id=args.network.vpc,
            tags=self._tags,
            opts=self._opts,
        )
        aws.vpc.SecurityGroupEgressRule(
            f"{args.name}-out", cidr_ipv4="0.0.0.0/0", security_group_id=group.id, ip_protocol="-1", opts=self._opts
        )
        own = pulumi.ResourceOptions(
            depends_on=[allowed],
            delete_before_replace=True,
            # A newer image of each week is no reason to make another machine; one that is named is.
            ignore_changes=[] if args.pinned else ["ami"],
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
            user_data_replace_on_change=True,  # it is read once
            tags=self._tags,
            opts=pulumi.ResourceOptions.merge(self._opts, own),
        )

    def engine(self, images: Mapping[str, str]) -> docker.Provider:
        """Return the machine as a Docker engine, which runs from here on; ``images`` are the tags to be built."""
        awake = Awake(
            f"{self._name}-awake",
            self._shift(images),
            pulumi.ResourceOptions(parent=self, depends_on=[self._attached]),
        )
        return docker.Provider(
            f"{self._name}-engine",
            host=f"ssh://{ssh_config.HOST}",
            ssh_opts=ssh_config.options(self._args.name),
            disable_docker_daemon_check=True,  # a preview needs no daemon
            opts=pulumi.ResourceOptions(parent=self, depends_on=[awake]),
        )

    def rest(self, images: Mapping[str, pulumi.Input[str]], after: Sequence[pulumi.Resource]) -> None:
        """Stop the machine once all is built; ``images`` are tags and digests, ``after`` what has to be done."""
        options = pulumi.ResourceOptions(parent=self, depends_on=[self._attached, *after])
        Asleep(f"{self._name}-asleep", self._shift(images), options)

    def _shift(self, images: Mapping[str, pulumi.Input[str]]) -> ShiftArgs:
        return ShiftArgs(self._args.region, self._args.name, self.instance, images)

    @property
    def outputs(self) -> dict[str, Any]:
        """What a stack exports of it."""
        ssh = f"ssh -F {ssh_config.config(self._args.name)} {ssh_config.HOST}"
        return {"instance": self.instance, "volume": self.volume, "connect": ssh}
