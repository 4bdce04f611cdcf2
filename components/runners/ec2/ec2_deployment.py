"""Declares a plan's EC2 runners from its configuration and what AWS answers, and returns the stack's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws

from components import provider_arguments
from components.runners.ec2.aws_lookup import look_up
from components.runners.ec2.builder import ssh_config
from components.runners.ec2.builder.ec2_builder import Ec2Builder, Ec2BuilderArgs
from components.runners.ec2.ec2_runners import Ec2Runners
from components.runners.ec2.runner_args import Ec2RunnersArgs
from components.runners.ec2.user_data import user_data
from containers.errors import SlipwayError
from containers.platform_name import architecture
from containers.registry.reference import Reference
from stacks.checks import ec2_site, reservations
from stacks.config import ec2
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.plan import Plan

_PRICE_LIST = "us-east-1"
"""A region whose price API knows all regions ("AWS Price List endpoints"); most regions have no such API."""

_CODE = Path(__file__).parents[3] / "scaler"


@dataclass(frozen=True)
class Deployed:
    """The stack's outputs of its runners, and the builders by platform, that of the runners' own first."""

    outputs: dict[str, Any]
    builders: Mapping[str, Ec2Builder]


def deploy(plan: Plan, config: ec2.Ec2RunnersConfig) -> Deployed:
    """Declare a plan's runners.

    Raises:
        pulumi.RunError: AWS lacks something that the configuration names; one line for each.
    """
    name = f"slipway-{plan.stack}"
    platform = plan.config.platform
    settings = provider_arguments.of(aws.Provider)
    account = {"region": config.region, "allowed_account_ids": [config.account]}
    provider = aws.Provider("runners-aws", **{**settings, **account})
    # Only for prices. A stack deploys without them where its account may not use this region.
    anywhere = {
        "region": _PRICE_LIST,
        "max_retries": 1,  # fails fast on a network that reaches one region only
        "skip_credentials_validation": True,
        "skip_requesting_account_id": True,
    }
    prices = aws.Provider("prices-aws", **{**settings, **anywhere})
    try:
        site = look_up(config, platform, pulumi.InvokeOptions(provider=provider), pulumi.InvokeOptions(provider=prices))
        ec2_site.check(config, site, platform, plan.config.budgets)
    except SlipwayError as error:
        raise pulumi.RunError(str(error)) from None
    if config.reservation:
        for line in reservations.endings(config.reservation, site.reservations, datetime.now(UTC)):
            pulumi.log.warn(f"slipway:runners.reservation: {line}")
    efa_counts = {machine.efa if config.efa == "all" else config.efa for machine in site.machines}
    gpus = site.gpus(config.gpus)
    runners = Ec2Runners(
        "runners",
        Ec2RunnersArgs(
            name=name,
            config=config,
            site=site,
            provider=provider,
            user_data={efa: user_data(config, platform, name=name, gpus=gpus, efa=efa) for efa in efa_counts},
            code={
                file.relative_to(_CODE).as_posix(): file.read_text(encoding="utf-8")
                for file in sorted(_CODE.rglob("*.py"))
            },
            pull=_repositories(plan, [*dict.fromkeys(image.spec.published_name for image in plan.images)] or ["*"]),
            push=_repositories(plan, config.push),
            labels=config.runner_labels(platform),
        ),
    )
    builders = {each: _builder(plan, config, site, each, provider) for each in site.builders}
    outputs = {
        "groups": runners.groups,
        "templateVersions": runners.template_versions,
        "role": runners.role,
        **({"webhook": runners.webhook} if runners.webhook is not None else {}),
        **({"scaleSet": name} if config.listener else {}),
        "labels": list(config.served_labels(platform)),
        "connect": f"aws ssm start-session --region {config.region} --target <instance id>",
        "logs": f"aws logs tail --region {config.region} --follow /{name}/runner",
        "spotDollarsPerHour": site.prices,
        "onDemandDollarsPerHour": site.on_demand_prices,
        "image": site.image,
        **_reservation_outputs(config, site),
        **_builder_outputs(builders, platform),
    }
    return Deployed(outputs, builders)


def _reservation_outputs(config: ec2.Ec2RunnersConfig, site: ec2_site.Site) -> dict[str, Any]:
    """Return the preview's lines on reservations and on the fallback."""
    requested = config.reservation
    if requested is None:
        return {}
    texts = {each.id: each.text(requested.drain) for each in site.reservations}
    return {"reservations": texts, "withoutReservation": reservations.then(requested, config.kinds)}


def _builder(
    plan: Plan, config: ec2.Ec2RunnersConfig, site: ec2_site.Site, platform: str, provider: aws.Provider
) -> Ec2Builder:
    """Declare the builder of a platform. An update also writes the ssh configuration for it.

    Names of another platform's end with its architecture, so that those of the first stay when one is added.
    """
    first = plan.config.platform
    name = "builder" if platform == first else f"builder-{architecture(platform)}"
    at_aws, build = site.builders[platform], config.builders(first)[platform]
    network = site.network(at_aws.machine)
    assert network is not None  # noqa: S101 - ec2_site.check refuses a type that no subnet has
    args = Ec2BuilderArgs(
        name=f"slipway-{plan.stack}-{name}",
        stack=f"slipway-{plan.stack}",
        region=config.region,
        build=build,
        image=at_aws.image,
        pinned=(build.image if isinstance(build, ec2.PlatformBuildConfig) else config.image) is not None,
        network=network,
        provider=provider,
        boundary=config.permissions_boundary,
    )
    if not pulumi.runtime.is_dry_run():
        try:
            ssh_config.write(config.region, args.name)
        except SlipwayError as error:
            raise pulumi.RunError(str(error)) from None
    return Ec2Builder(name, args)


def _builder_outputs(builders: Mapping[str, Ec2Builder], first: str) -> dict[str, Any]:
    """Return the outputs of the builders: of the ``first`` platform's, and of the others by platform."""
    others = {platform: builder.outputs for platform, builder in builders.items() if platform != first}
    own = {"builder": builders[first].outputs} if first in builders else {}
    return own | ({"otherBuilders": others} if others else {})


def _repositories(plan: Plan, names: Sequence[str]) -> list[str]:
    """Return the ARNs of repositories below the registry's path; none of a registry outside of ECR."""
    registry = plan.config.registry
    if not isinstance(registry, EcrRegistryConfig):
        return []
    path = Reference(registry.repository).path
    place = f"arn:{ec2_site.partition(registry.region)}:ecr:{registry.region}:{registry.account}"
    return [f"{place}:repository/{path}/{name}" for name in names]
