"""``slipway new --from``: variables of terraform-aws-github-runner as a stack's, and what a stack cannot take.

Of github-aws-runners/terraform-aws-github-runner v7.11.0-6-g4475534a9: variables.tf, variables.ami-housekeeper.tf and
modules/multi-runner/variables.tf have the names and the defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from cli.keys import other_tools_file
from cli.keys.terraform_text import Expression, read_hcl, read_json
from containers.errors import MALFORMED, SlipwayError, one_line
from stacks.checks.ec2_site import PLACEHOLDERS
from stacks.config.ec2 import DEFAULT_LABELS

_ENDINGS: Final = (".tf", ".tfvars", ".tf.json", ".tfvars.json")

_SOURCE: Final = re.compile(
    r"(?:.*[/:])?(?:[\w.-]+/github-runners?/aws|terraform-aws-github-runner)(?:\.git)?(?://?(?:modules/multi-runner/?)?)?"
    r"(?:\?.*)?"
)
"""The module's source: of a registry (upstream's documents have both names), of git, or a folder."""

_FILL: Final[dict[str, Any]] = {
    key: [text] if key in {"labels", "instanceTypes", "subnets"} else text for key, text in PLACEHOLDERS.items()
}
"""What stands for a value that must be there and is not known."""

_PLATFORMS: Final = {"x64": "linux/amd64", "arm64": "linux/arm64"}
_SET: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")

_TAKEN: Final = {"enable_ephemeral_runners": True, "runner_os": "linux", "runner_group_name": "Default"}
"""Values that a stack has anyway."""

_META: Final = frozenset({"source", "version", "providers", "depends_on", "lifecycle"})
"""Terraform's own arguments of a module."""

_WHY: Final = {
    "for_each count": "a stack is one of these modules: write a stack for each",
    "github_app additional_github_apps": "a credential stays out of a stack's file: github.secret is the ARN of yours",
    "enable_ephemeral_runners enable_jit_config": "a machine takes one job, by a registration of its own",
    "repository_white_list": "the App's installation and the runner group say which repositories there are",
    "runner_group_name": "github.group, of a set groupId, takes the group's id",
    "runner_os": "runners on EC2 are Linux",
    "runner_disable_default_labels": "these runners have none of GitHub's own labels",
    "*ami_housekeeper*": "no machine images are made",
    "ami ami_*": "runners.ami takes an id: look up which image it is; without one it is AWS's Deep Learning AMI",
    "*userdata* *user_data*": "no key takes a script: make a machine image with it, and give its id as runners.ami",
    "runner_hook_*": "no key takes a script: it is a step of the workflow",
    "block_device_mappings.*": "the root volume is gp3, encrypted, with its own rates, and goes with its machine",
    "block_device_mappings": "runners.root is the root volume's size, from 75 GiB on, where there is one volume",
    "idle_config pool_config": "it is not of whole hours of the week: write runners.schedule",
    "tags *_tags": "no key takes tags: pulumi config set --path aws:defaultTags.tags.KEY VALUE",
    "prefix runner_name_prefix role_path instance_profile_path environment": "names begin with slipway-<stack>",
    "iam_overrides runner_iam_role_managed_policy_arns": "the machines' role is Slipway's; runners.push adds to it",
    "vpc_id": "all machines are in one VPC",
    "*kms* queue_encryption": "no key takes a key of KMS: AWS's own key encrypts",
    "instance_allocation_strategy instance_type_priorities": "spot capacity is taken by price and interruptions, "
    "on-demand capacity in the order of instanceTypes",
    "instance_max_spot_price": "no key takes a price: runners.spot=false takes no spot capacity",
    "*on_demand_failover* scale_errors": "on-demand capacity follows spot in any case, after runners.spotPatience",
    "enable_ssm_on_runners key_name": "machines are reached by Session Manager, without a key pair",
    "associate_public_ipv4_address": "the subnet says it",
    "runner_egress_rules *security_group*": "the security group is Slipway's: all may go out, nothing comes in",
    "*metadata_options": "a machine's metadata needs a token, and has no tags",
    "*ebs_optimized": "machines are EBS-optimized",
    "*credit_specification *cpu_options *placement *license_specifications use_dedicated_host *monitoring": "no key "
    "takes such options of a machine",
    "*cloudwatch* runner_log_files log_class": "the machines' own logs are in CloudWatch; no key adds files",
    "minimum_running_time_in_minutes": "runners.idle takes whole minutes, from 1 to 1440",
    "runner_boot_time_in_minutes": "runners.boot takes whole minutes, from 5 to 120",
    "logging_retention_in_days": "runners.logDays takes 1, 3, 5, 7, 14, 30, 60, 90, 180 or 365",
    "*dynamic_labels* enableDynamicLabels awsDynamicLabelsPolicy": "jobs choose machines by the labels of a set",
    "job_retry *job_queued_check *queue* *webhook* *label* matcher* delay_* eventbridge fifo exactMatch bidirectional* "
    "priority": "there is no webhook and no queue: GitHub tells the listener of jobs until they have a runner",
    "*binaries* *syncer*": "a machine loads GitHub's runner, of the version of runners.runner",
    "disable_runner_autoupdate": "runners.runner is the version",
    "*lambda* log_level tracing_config user_agent": "Slipway has one function of its own",
    "scale_down_schedule_expression scale_up_*": "the function's rounds follow each message, and each minute",
    "instance_termination_watcher": "a job that lost its machine is rerun: runners.retries",
    "metrics": "`slipway runners status --metrics` has the jobs by step and cause",
    "pool_*": "runners.minRunners and runners.schedule are machines that wait for jobs",
    "runner_as_root runner_run_as": "the user of a job is Slipway's",
    "create_service_linked_role_spot": "who deploys may create it, by docs/runners/ec2-policy.json",
    "aws_partition": "the region has it",
    "ghes_ssl_verify": "certificates are verified",
    "*ssm*": "registrations are in a table, and no parameters are made",
}
"""Why a variable has no equal, by patterns of its name; the first one counts."""

_NUMBERS: Final = {
    "minimum_running_time_in_minutes": ("idle", range(1, 1441)),
    "runner_boot_time_in_minutes": ("boot", range(5, 121)),
}
"""Keys by their variables, with the numbers that they take."""

_TIMES: Final = {
    "idle_config": ("cron", "timeZone", "idleCount"),
    "pool_config": ("schedule_expression", "schedule_expression_timezone", "size"),
}
"""Fields of a time at which machines wait: when, in which zone, and how many."""

_TYPES: Final = ["m5.large", "c5.large"]
"""The module's default of instance_types."""

_LEAST_ROOT: Final = 75
_VOLUME: Final = {
    "volume_type": "gp3",
    "encrypted": True,
    "delete_on_termination": True,
    "iops": 6000,
    "throughput": 500,
}
"""What a root volume is anyway (components/runners/ec2/scaling_groups.py)."""
_LOG_DAYS: Final = {1, 3, 5, 7, 14, 30, 60, 90, 180, 365}
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass
class _Variables:
    """Variables of the module, or of one of its sets. What is taken of them goes."""

    rest: dict[str, Any]
    key: str = ""
    """Where a set's keys are, below ``runners``."""
    fill: dict[str, str] = field(default_factory=dict)
    """Why a key is to be filled in."""

    def take(self, name: str, key: str, *, whole: bool = False) -> Any:
        """Return a variable's value; None without one.

        The key of an unknown value is noted. The known items of a list are returned, else the key's placeholder, if
        any. With ``whole``, only an expression is unknown: the caller looks at the parts of a value.
        """
        value = self.rest.pop(name, None)
        if unknown := str(value) if whole and isinstance(value, Expression) else "" if whole else _unknown(value):
            self.fill[f"runners.{self.key}{key}"] = f"{name} is {unknown}"
            known = [item for item in value if not _unknown(item)] if isinstance(value, list) else []
            return known or _FILL.get(key)
        return value

    def needed(self, key: str, value: Any) -> Any:
        """Return a value; without one, what stands for it until it is filled in."""
        if not value:
            self.fill.setdefault(f"runners.{self.key}{key}", "no variable says it")
        return value or _FILL[key]


def is_terraform(path: Path) -> bool:
    """Whether a file's name is one of Terraform's."""
    return path.name.endswith(_ENDINGS)


def terraform_values(path: Path, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a stack's values from a file's variables, a line for each key to fill in and for each variable not taken.

    ``given`` are values that replace them: what is there is not to be filled in.

    Raises SlipwayError: the file cannot be read, or has no variables of the module, or of two modules.
    """
    content = other_tools_file.content(path, "a file of Terraform's")
    try:
        text = content.decode("utf-8-sig")
        document = read_json(text) if path.name.endswith(".json") else read_hcl(text)
        variables = _Variables(_module(document, path))
    except MALFORMED as error:
        kind = "JSON" if path.name.endswith(".json") else "HCL"
        why = f": {one_line(str(error))}" if type(error) in {ValueError, json.JSONDecodeError} else ""
        raise SlipwayError(f"--from {path}: is not Terraform's {kind}{why}") from None
    try:
        return _translated(variables, given)
    except MALFORMED as error:
        raise SlipwayError(
            f"--from {path}: has another shape than variables of terraform-aws-github-runner: {type(error).__name__}"
        ) from None


def _module(document: Any, path: Path) -> dict[str, Any]:
    """Return the module's variables: those of its block, or of a file of variables."""
    if ".tfvars" in path.name:
        if isinstance(document, dict) and document.keys() & {"instance_types", "multi_runner_config", "github_app"}:
            return _some(document)
        raise SlipwayError(
            f"--from {path}: has no variables of terraform-aws-github-runner: expected instance_types, github_app or "
            "multi_runner_config"
        )
    blocks = document.get("module", [])
    modules = {
        name: body
        for block in (blocks if isinstance(blocks, list) else [blocks])
        for name, bodies in block.items()
        for body in (bodies if isinstance(bodies, list) else [bodies])
        if _SOURCE.fullmatch(str(body.get("source")))
    }
    if len(modules) != 1:
        names = f": {', '.join(map(one_line, sorted(modules)))}: keep one in the file" if modules else ""
        raise SlipwayError(
            f"--from {path}: expected one module with the source github-aws-runners/github-runner/aws; it has "
            f"{len(modules)}{names}"
        )
    (body,) = modules.values()
    return _some({name: value for name, value in body.items() if name not in _META})


def _translated(module: _Variables, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    beside, left = given.get("runners", {}), dict[str, str]()
    sets = _sets(module, left) or {"": module}
    platforms = {name: _PLATFORMS.get(one.rest.pop("runner_architecture", "x64"), "") for name, one in sets.items()}
    platform = given.get("platform") or next(filter(None, platforms.values()), "linux/amd64")
    _check_platform(platforms, given)
    for name in [name for name, own in platforms.items() if name and own not in {platform, ""}]:
        left[f"multi_runner_config.{name}"] = f"it is not for {platform}: write a stack for it, with platform=VALUE"
        del sets[name]
    if "" in platforms.values():
        module.fill["platform"] = "runner_architecture is neither x64 nor arm64"
    runners = {"kind": "ec2", **_shared(module, [*sets.values()], beside)}
    if "" not in sets:
        runners["sets"] = {name: _of_set(one) for name, one in sets.items()}
    elif "runners.sets" not in module.fill:
        runners |= _of_set(module)
        runners["labels"] = module.needed("labels", runners.get("labels"))
    elif "sets" not in beside:
        runners["sets"] = {PLACEHOLDERS["labels"]: {"instanceTypes": _FILL["instanceTypes"]}}
    every = [module, *sets.values()]
    fill = {key: why for one in every for key, why in one.fill.items() if not _has(given, key)}
    left |= {name: _why(name) for one in every for name in one.rest}
    return {"flavor": "runners", "platform": platform, "runners": runners}, [
        *(f"fill in: {one_line(key)}: {why}" for key, why in fill.items()),
        *(f"not taken: {one_line(name)}: {why}" for name, why in left.items()),
        "not taken: self-hosted, linux, x64, arm64: runners have none of GitHub's own labels: workflows name their own",
    ]


def _check_platform(platforms: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """Refuse a platform for which no runners are in the file: the stack would have none, or machines of another one."""
    wanted = given.get("platform")
    others = sorted({own for own in platforms.values() if own})
    if wanted and others and wanted not in others and "" not in platforms.values():
        raise SlipwayError(
            f"platform={one_line(str(wanted))}: all runners in the file are for {' and '.join(others)}: leave platform "
            "out"
        )


def _sets(module: _Variables, left: dict[str, str]) -> dict[str, _Variables]:
    """Return the variables of each set that runners on EC2 can be; ``left`` gets a line for each other one."""
    config = module.take("multi_runner_config", "sets", whole=True)
    sets: dict[str, _Variables] = {}
    for name, entry in (config or {}).items():
        own = name.lower().replace("_", "-")
        inner = entry if isinstance(entry, Expression) else entry.pop("runner_config")
        if isinstance(inner, Expression):
            module.fill[f"runners.sets.{own}"] = f"multi_runner_config.{one_line(name)} is {inner}"
        elif inner.get("runner_os", "linux") in {"windows", "osx"}:
            left[f"multi_runner_config.{name}"] = _why("runner_os")
        elif not _SET.fullmatch(own) or own in {*DEFAULT_LABELS, *sets}:
            left[f"multi_runner_config.{name}"] = (
                "a set has a name of its own: 1 to 32 of a-z, 0-9 and -, and none of GitHub's own labels"
            )
        else:
            matchers = entry.pop("matcherConfig", {})
            matchers = {"labelMatchers": matchers} if isinstance(matchers, Expression) else matchers
            sets[own] = _Variables(_some({**entry, **inner, **matchers}), f"sets.{own}.")
    if config and not sets:
        module.fill["runners.sets"] = "no set of multi_runner_config is known"
    return sets


def _shared(module: _Variables, each: list[_Variables], beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all machines share. ``beside`` are keys that replace it. The secret's place follows them."""
    boundary = module.take("role_permissions_boundary", "permissionsBoundary")
    account = re.match(r"arn:[\w-]+:iam::([0-9]{12}):", str(boundary))
    values: dict[str, Any] = {
        "region": module.needed("region", module.take("aws_region", "region")),
        "account": module.needed("account", account and account[1]),
    }
    place = ":".join(str(beside.get(key, values[key])) for key in ("region", "account"))
    secret = f"arn:aws:secretsmanager:{place}:secret:{_FILL['secret']}"
    module.fill["runners.github.secret"] = "the ARN of your own secret with the App's key (docs/runners/ec2.md)"
    host = module.take("ghes_url", "github.url") or "https://github.com"
    owners = {*filter(None, [one.take("pool_runner_owner", "github.url") for one in each])}
    owner = owners.pop() if len(owners) == 1 else _FILL["owner"]
    if owner == _FILL["owner"]:
        module.fill["runners.github.url"] = "the organization, or the one repository, whose jobs they take"
    for one in each:
        one.rest.pop("enable_organization_runners", None)
    values["github"] = {"url": f"{host.rstrip('/')}/{owner}", "secret": secret}
    if module.rest.get("logging_retention_in_days") in _LOG_DAYS:
        values["logDays"] = module.rest.pop("logging_retention_in_days")
    network = {"vpc": module.take("vpc_id", "vpc"), "subnets": module.take("subnet_ids", "subnets")}
    return values | _some({**network, "permissionsBoundary": boundary})


def _of_set(variables: _Variables) -> dict[str, Any]:
    """Return the keys that each set has of its own."""
    rest = variables.rest
    types = variables.take("instance_types", "instanceTypes") if "instance_types" in rest else _TYPES
    labels = [*(variables.take("runner_extra_labels", "labels") or [])]
    labels += [label for each in variables.take("labelMatchers", "labels") or [] for label in each]
    unwanted = {*DEFAULT_LABELS, variables.key.split(".")[1] if variables.key else ""}
    own = _some(
        {
            "labels": [*{label.lower(): label for label in labels if label.lower() not in unwanted}.values()],
            "instanceTypes": variables.needed("instanceTypes", [*types]),
            "subnets": variables.take("subnet_ids", "subnets"),
        }
    )
    if capacity := variables.take("instance_target_capacity_type", "spot"):
        own["spot"] = "true" if capacity == "spot" else "false"
    for variable, (key, numbers) in _NUMBERS.items():
        if isinstance(rest.get(variable), Expression):
            variables.take(variable, key)
        elif (number := str(rest.get(variable)).removesuffix(".0")) in map(str, numbers):  # 5.0 is 5 to HCL
            own[key] = number
            del rest[variable]
    for key, value in _TAKEN.items():
        if rest.get(key) == value:
            del rest[key]
    return own | _volume(rest) | _count(variables)


def _volume(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the key of the root volume, and leave its options that no key takes."""
    volumes = rest.get("block_device_mappings")
    volume = dict(volumes[0]) if isinstance(volumes, list) and len(volumes) == 1 else {}
    size = volume.pop("volume_size", None)
    if not isinstance(size, int) or size < _LEAST_ROOT:
        return {}
    del rest["block_device_mappings"]
    rest |= {
        f"block_device_mappings.{name}": value
        for name, value in volume.items()
        if name != "device_name" and value not in (None, _VOLUME.get(name))
    }
    return {"root": str(size)}


def _count(variables: _Variables) -> dict[str, Any]:
    """Return how many machines there are at most, and how many wait for jobs at which times."""
    most = variables.take("runners_maximum_count", "maxRunners") if "runners_maximum_count" in variables.rest else 3
    if most is not None and int(most) < 0:
        most, variables.fill[f"runners.{variables.key}maxRunners"] = None, f"runners_maximum_count is {most}: no limit"
    rows: list[dict[str, Any]] = []
    pool = 0
    for name, (cron, zone, size) in _TIMES.items():
        for entry in variables.take(name, "schedule") or []:
            if hours := _hours(entry[cron], aws=name == "pool_config"):
                pool = max(pool, int(entry[size])) if name == "pool_config" else pool
                rows.append({"minRunners": str(entry[size]), **hours, **_some({"timeZone": entry.get(zone)})})
            else:
                variables.rest[name] = entry
    most = max([4, *(int(row["minRunners"]) for row in rows)]) if most is None else int(most)
    if pool > most:
        why = f"pool_config has {pool} machines, and runners_maximum_count is {most}"
        variables.fill[f"runners.{variables.key}maxRunners"] = why
    for row in rows:
        row["minRunners"] = str(min(int(row["minRunners"]), most))  # idle_config keeps machines, and makes none
    return {"maxRunners": str(most), **_some({"schedule": rows})}


def _hours(expression: str, *, aws: bool) -> dict[str, Any]:
    """Return the days and hours of a cron expression that holds for whole hours; nothing for another one.

    cron-parser has seconds first and Sunday as 0 or 7; EventBridge has the year last and Sunday as 1.
    """
    fields = expression.removeprefix("cron(").removesuffix(")").lower().replace("?", "*").split()
    if not aws:
        fields = [*fields[-5:], *(fields[:-5] or "*")]
    if len(fields) != 6 or not re.fullmatch(r"\*|0-59|[*0]/\d+", fields[0]) or {*fields[2:4], fields[5]} != {"*"}:
        return {}
    hours = re.fullmatch(r"(\d+)(?:-(\d+))?", fields[1].replace("*", "0-23"))
    if not hours:
        return {}
    first, last = int(hours[1]), int(hours[2] or hours[1])
    known = {str(n + aws): n for n in range(8 - aws)} | {name: n for n, name in enumerate(_DAYS)}
    days: list[str] = []
    for part in fields[4].replace("*", "sun-sat").split(","):
        ends = [known.get(end, -1) for end in part.split("-")]
        if not 0 <= ends[0] <= ends[-1]:
            return {}
        days += [_DAYS[day % 7] for day in range(ends[0], ends[-1] + 1)]
    return {"days": days, "start": f"{first:02}:00", "end": f"{last + 1:02}:00"} if first <= last < 24 else {}


def _unknown(value: Any) -> str:
    """Return what of a value only Terraform knows; empty where all is known."""
    if isinstance(value, Expression):
        return str(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, map(_unknown, inner)), "")


def _some(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def _has(given: Any, key: str) -> bool:
    for part in key.split("."):
        given = given.get(part) if isinstance(given, Mapping) else None
    return given is not None


def _why(name: str) -> str:
    rows = (why for patterns, why in _WHY.items() if any(fnmatchcase(name, each) for each in patterns.split()))
    return next(rows, "no key of Slipway's takes it")
