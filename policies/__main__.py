"""The policy pack: each rule of ``stack_rules`` as a policy over the whole stack.

Pulumi runs it in the program's folder, with the engine's address as its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import stack_rules
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
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


def _resources(args: StackValidationArgs) -> list[stack_rules.Resource]:
    return [
        stack_rules.Resource(
            resource.resource_type,
            resource.urn,
            resource.name,
            _plain(resource.props),
            resource.parent.urn if resource.parent else "",
        )
        for resource in args.resources
    ]


def _validation(rule: stack_rules.Rule) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        resources = _resources(args)
        for violation in rule.check(resources, stack_rules.settings(resources, Path.cwd())):
            report(violation.message, violation.urn)

    return validate


PolicyPack(
    name="slipway",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        StackValidationPolicy(name=rule.name, description=rule.description, validate=_validation(rule))
        for rule in stack_rules.RULES
    ],
)
