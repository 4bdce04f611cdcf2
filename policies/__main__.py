"""The policy pack: each rule of ``stack_rules`` as a policy over each resource, or over the whole stack.

Pulumi runs it in the program's folder, with the engine's address as its argument.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # Slipway's reader of Dockerfiles

import stack_rules
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError


def _plain(value: Any) -> Any:
    """Return a property as plain data; what a preview cannot know is None."""
    if isinstance(value, Mapping):
        return {key: _member(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_member(value, index) for index in range(len(value))]
    return value


def _member(container: Any, key: Any) -> Any:
    try:
        return _plain(container[key])
    except UnknownValueError:
        return None


def _of_stack(rule: stack_rules.Rule) -> StackValidationPolicy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        resources = [
            stack_rules.Resource(
                one.resource_type,
                one.urn,
                one.name,
                _plain(one.props),
                one.parent.urn if one.parent else "",
                frozenset(dependency.urn for dependency in one.dependencies),
            )
            for one in args.resources
        ]
        for violation in rule.check(resources, stack_rules.settings(resources, Path.cwd())):
            report(violation.message, violation.urn)

    return StackValidationPolicy(name=rule.name, description=rule.description, validate=validate)


def _of_resource(rule: stack_rules.Rule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        resource = stack_rules.Resource(args.resource_type, args.urn, args.name, _plain(args.props))
        for violation in rule.check([resource], {}):
            report(violation.message, violation.urn)

    return ResourceValidationPolicy(name=rule.name, description=rule.description, validate=validate)


PolicyPack(
    name="slipway",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[_of_stack(rule) if rule.whole else _of_resource(rule) for rule in stack_rules.RULES],
)
