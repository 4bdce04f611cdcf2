"""What ``slipway new --from`` writes for a value that must be there and that the other tool's file does not say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from containers.errors import one_line
from stacks.graph import Graph

REGION: Final = "fill-in-0"
ACCOUNT: Final = "000000000000"
OWNER: Final = "-fill-in-"
LABEL: Final = "fill-in"
INSTANCE_TYPE: Final = "fill-in.metal"
VPC: Final = "vpc-00000000"
SUBNET: Final = "subnet-00000000"
SECRET: Final = "slipway/github-FillIn"  # noqa: S105 - a secret's name
_ANY: Final = re.compile(
    rf"{REGION}|{ACCOUNT}|.*/{OWNER}|{LABEL}|{re.escape(INSTANCE_TYPE)}|{VPC}|{SUBNET}|arn:.*:secret:{SECRET}"
)
"""AWS and GitHub have none of these."""


def unfilled(graph: Graph) -> Iterator[str]:
    """Yield a message for each key of the runners that still has a placeholder."""
    if graph.config.runners is not None:
        values = graph.config.runners.model_dump(mode="json", by_alias=True, exclude_unset=True)
        yield from _of(values, "slipway:runners")


def _of(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _of(inner, f"{key}.{name}")
            if name == LABEL:
                yield f"{key}: '{name}' stands for a set's name: write your own"
    elif isinstance(value, list):
        for inner in value:
            yield from _of(inner, key)
    elif isinstance(value, str) and _ANY.fullmatch(value):
        yield f"{key}: '{one_line(value)}' stands for a value that `slipway new --from` did not find: write your own"
