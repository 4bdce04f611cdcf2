"""Declares a plan's EC2 runners from its configuration and what AWS answers, and returns the stack's outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

    Raises pulumi.RunError: AWS lacks something that the configuration names; one line for each.
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
        site, of_sets = _sites(
            plan, config, pulumi.InvokeOptions(provider=provider), pulumi.InvokeOptions(provider=prices)
        )
    except SlipwayError as error:
        raise pulumi.RunError(str(error)) from None
    for line in _reservation_warnings(of_sets):
        pulumi.log.warn(f"slipway:runners.{line}")
    shared = Ec2RunnersArgs(
        name=name,
        stack=name,
        config=config,
        site=site,
        provider=provider,
        user_data={},
        code={
            file.relative_to(_CODE).as_posix(): file.read_text(encoding="utf-8") for file in sorted(_CODE.rglob("*.py"))
        },
        pull=_repositories(plan, [*dict.fromkeys(image.spec.published_name for image in plan.images)] or ["*"]),
        push=_repositories(plan, config.push),
        labels=config.runner_labels(platform),
    )
    runners = Ec2Runners("runners", shared, [_of_set(shared, plan, own, there) for own, there in of_sets])
    builders = {each: _builder(plan, config, site, each, provider) for each in site.builders}
    all_sites = [*(there for _, there in of_sets), site]
    outputs = {
        "groups": runners.groups,
        "templateVersions": runners.template_versions,
        "role": runners.role,
        **({"webhook": runners.webhook} if runners.webhook is not None else {}),
        **_scale_set_outputs(name, config, platform),
        "connect": f"aws ssm start-session --region {config.region} --target <instance id>",
        "logs": f"aws logs tail --region {config.region} --follow /{name}/runner",
        "spotDollarsPerHour": {type_: price for there in all_sites for type_, price in there.prices.items()},
        "onDemandDollarsPerHour": {
            type_: price for there in all_sites for type_, price in there.on_demand_prices.items()
        },
        "image": site.image,
        **_reservation_outputs(of_sets),
        **_builder_outputs(builders, platform),
    }
    return Deployed(outputs, builders)


_Sites = Sequence[tuple[ec2.Ec2RunnersConfig, ec2_site.Site]]
"""The runners of each set, and what AWS answered about them."""


def _sites(
    plan: Plan, config: ec2.Ec2RunnersConfig, opts: pulumi.InvokeOptions, prices: pulumi.InvokeOptions
) -> tuple[ec2_site.Site, _Sites]:
    """Look up the shared site and that of each set: without sets, both are one.

    Raises SlipwayError: AWS does not answer, or lacks something; one line for each.
    """
    platform, budgets = plan.config.platform, plan.config.budgets
    shared = config
    if config.sets:  # machines and reservations are the sets' own, and networks those of all
        subnets = config.subnets or tuple(dict.fromkeys(each for own in config.all_sets for each in own.subnets))
        shared = config.model_copy(update={"instance_types": (), "reservation": None, "efa": 0, "subnets": subnets})
    site = look_up(shared, platform, opts, prices)
    ec2_site.check(shared, site, platform, budgets)
    if not config.sets:
        return site, [(config, site)]
    of_sets = [(own, look_up(own, platform, opts, prices)) for own in config.all_sets]
    for own, there in of_sets:
        ec2_site.check(own, there, platform, budgets)
        if there.vpc != site.vpc:
            raise SlipwayError(
                f"slipway:runners.{own.key('subnets')}: these are in {there.vpc}, and those of other sets in "
                f"{site.vpc}: give all sets subnets of one VPC"
            )
    networks = [
        *dict.fromkeys(network for there in (site, *(there for _, there in of_sets)) for network in there.networks)
    ]
    return replace(site, networks=networks), of_sets


def _of_set(shared: Ec2RunnersArgs, plan: Plan, config: ec2.Ec2RunnersConfig, site: ec2_site.Site) -> Ec2RunnersArgs:
    """Return the arguments of one set."""
    platform, gpus = plan.config.platform, site.gpus(config.min_gpus)
    efa_counts = {machine.efa if config.efa == "all" else config.efa for machine in site.machines}
    return replace(
        shared,
        name=config.resource_name(plan.stack),
        config=config,
        site=site,
        user_data={efa: user_data(config, platform, name=shared.stack, gpus=gpus, efa=efa) for efa in efa_counts},
        labels=config.runner_labels(platform),
    )


def _scale_set_outputs(name: str, config: ec2.Ec2RunnersConfig, platform: str) -> dict[str, Any]:
    """Return the outputs of what jobs name: the labels, of each set if there are several."""
    if config.sets:
        sets = config.all_sets
        return {
            "scaleSets": [own.scale_set for own in sets],
            "labels": {own.scale_set: list(own.served_labels(platform)) for own in sets},
        }
    scale_set = {"scaleSet": name} if config.listens else {}
    return {**scale_set, "labels": list(config.served_labels(platform))}


def _reservation_warnings(of_sets: _Sites) -> Iterator[str]:
    """Yield the preview's lines about reservations that fit their sets' machines."""
    for own, site in of_sets:
        if own.reservation:
            lines = [
                *reservations.warnings(own.reservation, site.reservations, datetime.now(UTC)),
                *reservations.full(own.reservation, site.reservations),
            ]
            yield from (f"{own.key('reservation')}: {line}" for line in lines)
    yield from (
        f"sets: {line}"
        for line in reservations.shared(
            {own.scale_set: (own.max_runners, site.reservations, bool(own.kinds)) for own, site in of_sets}
        )
    )


def _reservation_outputs(of_sets: _Sites) -> dict[str, Any]:
    """Return the preview's lines on reservations and on the fallback."""
    texts: dict[str, str] = {}
    fallbacks: dict[str, str] = {}
    for own, site in of_sets:
        if own.reservation:
            texts |= {each.id: each.text(own.reservation.drain) for each in site.reservations}
            fallbacks[own.scale_set] = reservations.then(own.reservation, own.kinds)
    if not fallbacks:
        return {}
    return {"reservations": texts, "withoutReservation": fallbacks.get("", fallbacks)}


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
        pinned=(build.ami if isinstance(build, ec2.PlatformBuildConfig) else config.ami) is not None,
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
