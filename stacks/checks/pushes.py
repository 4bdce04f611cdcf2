"""What is pushed beside the stack's images: by jobs on EC2 (``runners.push``), and warm layers (``warm``).

A product is taken by its tag, which may move: whoever may push it decides what images are made of. So no repository for
the pushes of jobs holds a product of any stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks import graph as graphs
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.stack_file import read_stack, stack_names
from stacks.graph import Graph

_KEY = "slipway:runners.push"


def products(graph: Graph) -> Iterator[str]:
    """Yield a message for each repository that holds products, of this stack or of another one in the checkout."""
    runners, registry = graph.config.runners, graph.config.registry
    if not isinstance(runners, Ec2RunnersConfig) or not runners.push:
        return
    if not isinstance(registry, EcrRegistryConfig):
        yield f"{_KEY}: slipway:registry is of kind {registry.kind}; a machine's role pushes to ECR: leave push out"
        return
    owners = _owners(graph, registry.repository)
    for name in runners.push:
        if name in owners:
            yield (
                f"{_KEY}: '{name}': stack {owners[name]} keeps a build product there, which its images are made of: "
                "leave it out, or have the job push to a repository of its own"
            )


def missing_warm_script(graph: Graph) -> Iterator[str]:
    """Yield a message if the checkout lacks the script of `slipway:warm`."""
    script = graph.config.warm.script if graph.config.warm else ""
    if script and not (graph.root / script).is_file():
        yield f"slipway:warm.script: '{script}': the checkout has no such file: write it, or leave slipway:warm out"


def _owners(graph: Graph, repository: str) -> dict[str, str]:
    """Return the stacks by the name of each product that they have below a registry's path."""
    stack = graph.where.removeprefix("stack ")
    owners = {spec.published_name: stack for spec in graph.specs if spec.product}
    for name in stack_names(graph.root):
        with suppress(SlipwayError):  # a mistake of another stack is that stack's
            values = read_stack(name, graph.root)
            if name == stack or Reference(repository).path not in str(values.get("registry")):
                continue
            theirs = graphs.unlocked(values, f"stack {name}", graph.root)
            if Reference(theirs.config.registry.repository).normal == Reference(repository).normal:
                owners |= {spec.published_name: name for spec in theirs.specs if spec.product}
    return owners
