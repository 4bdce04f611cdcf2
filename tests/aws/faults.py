"""Planted faults: all that a stack asks of AWS is asked for otherwise, option by option, to see what a test overlooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from tests.aws.runners import RunnersProject
from tests.fakes.aws.resource_types import RUNNERS as KINDS

_SEEN = (AssertionError, BotoCoreError, ClientError, KeyError, ResponseParserError, ValueError)
"""How a fault is told: by the test, by AWS, by botocore's models, by the stand-in, and by moto where it fails on it."""

_OTHERWISE = frozenset({"code", "tags"})
"""Inputs that are not changed as options are: what is in a function, and the tags of all but groups."""


def overlooked(project: RunnersProject, token: str, check: Callable[[RunnersProject], None]) -> set[str]:
    """Return the options of a type's resources that nobody sees to be others than the stack asks for.

    Args:
        project: an applied stack. Each of its resources is changed in AWS, and then changed back.
        token: the type, such as ``aws:autoscaling/group:Group``.
        check: raises AssertionError where AWS has not what it should.
    """
    kind, options = KINDS[token], set()
    client = project.api(kind.service)
    for resource in project.resources(token.removeprefix("aws:")):
        inputs, known = resource["inputs"], resource["outputs"]
        fixed = kind.replaces | {"__defaults", *(_OTHERWISE if isinstance(inputs.get("tags"), dict) else {})}
        for option in sorted(inputs.keys() - fixed):
            for other in _others(inputs[option]):
                news = {**inputs, option: other}
                try:
                    kind.update(client, resource["id"], known, news)
                    check(project)
                except _SEEN:
                    continue
                else:
                    options.add(option)
                finally:
                    kind.update(client, resource["id"], {**known, **news}, inputs)
            check(project)  # each is alone
    return options


def _others(value: Any) -> Iterator[Any]:
    """Yield values that differ from one in one place: an item of a list is left out, or something is something else."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: other} for other in _others(item))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            before, after = value[:number], value[number + 1 :]
            yield [*before, *after]
            yield from ([*before, other, *after] for other in _others(item))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    else:
        yield {"true": "false", "false": "true"}.get(value, f"x{value}")
