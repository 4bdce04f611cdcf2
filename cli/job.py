"""Examples of jobs that run a stack's image: Kubernetes objects, and a batch script for Slurm."""

from __future__ import annotations

import yaml

from cli.plain_yaml import PlainDumper
from containers.errors import SlipwayError, one_line
from stacks import flavors, plan
from stacks.jobs import slurm


def render(stack: str, nodes: int) -> str:
    """Return Kubernetes objects that run a stack's image on so many nodes, as YAML.

    That is the last of the user's own images on top of them, if there is one.

    Raises:
        SlipwayError: the stack is wrong, its flavor has no example, or ``nodes`` is less than two.
    """
    planned = plan.make(stack)
    module = flavors.flavor(planned.config.flavor)
    if not isinstance(module, flavors.HasJob):
        supported = [name for name in flavors.names() if isinstance(flavors.flavor(name), flavors.HasJob)]
        raise SlipwayError(
            f"stack {stack}: the flavor '{one_line(planned.config.flavor)}' has no example of a job for Kubernetes; "
            f"those that have one: {', '.join(supported)}; with --slurm every stack with CUDA has one"
        )
    if nodes < 2:
        raise SlipwayError(f"--nodes {nodes}: the example is for several nodes; give 2 or more")
    own = {planned.recipe(image).spec.published_name: image for image in planned.images if image.spec.own}
    references = planned.references
    run = references | {name: references[image.spec.published_name] for name, image in own.items()}
    with flavors.own_code(planned.config.flavor):
        objects = module.job(planned.config, run, nodes)
    return yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=120)


def batch_script(stack: str, nodes: int, platform: str | None = None) -> str:
    """Return a batch script for Slurm that runs a stack's last image on so many nodes.

    ``platform`` is that of the nodes. By default it is the stack's first.

    Raises:
        SlipwayError: the stack is wrong, it has no image to run, none with CUDA or none for the platform, or ``nodes``
            is less than one.
    """
    planned = plan.make(stack)
    image = planned.image(platform=platform or (planned.config.platform if planned.indexes else None))
    return slurm.script(planned, image, nodes)
