"""``python -m stacks job``: an example of a job that runs a stack's image on the nodes that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import yaml

from cli.plain_yaml import PlainDumper
from stacks import flavors, plan
from stacks.errors import SlipwayError, one_line


class Example(Protocol):
    """What a flavor's module offers that has an example."""

    def job(self, config: Any, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
        """Return Kubernetes objects; ``images`` maps the stack's images to their references."""


def render(stack: str, nodes: int) -> str:
    """Return a job of so many nodes for a stack, as YAML.

    Raises:
        SlipwayError: the stack is wrong, its flavor has no example, or fewer than two nodes are asked for.
    """
    planned = plan.make(stack)
    module = flavors.flavor(planned.config.flavor)
    if not hasattr(module, "job"):
        having = [name for name in flavors.names() if hasattr(flavors.flavor(name), "job")]
        raise SlipwayError(
            f"stack {stack}: there is no example of a job for the flavor '{one_line(planned.config.flavor)}'; "
            f"there is one for: {', '.join(having)}; for Slurm there is one for all that have CUDA: --slurm"
        )
    if nodes < 2:
        raise SlipwayError(f"--nodes {nodes}: the example is for several nodes; give 2 or more")
    objects = cast("Example", module).job(planned.config, planned.references, nodes)
    return yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=120)
