"""Examples of jobs that run a stack's image: Kubernetes objects, and a batch script for Slurm."""

from __future__ import annotations

from typing import Any

import yaml

from cli.plain_yaml import PlainDumper
from containers.errors import SlipwayError
from containers.platform_name import architecture
from stacks import flavors, plan
from stacks.jobs import slurm
from stacks.jobs.indexed_job import indexed_job


def render(stack: str, nodes: int, image: str | None = None) -> str:
    """Return Kubernetes objects that run a stack's image on so many nodes, as YAML.

    Without the name of an image, that is the last of the user's own images on top of them, if there is one, and a
    flavor may have an example of its own. Else it is an indexed Job.

    Raises SlipwayError: the stack is wrong, its images have no CUDA, or ``nodes`` is too few.
    """
    planned = plan.make(stack)
    module = flavors.flavor(planned.config.flavor)
    if isinstance(module, flavors.HasJob) and image is None:
        if nodes < 2:
            raise SlipwayError(f"--nodes {nodes}: the example is for several nodes; give 2 or more")
        own = {planned.recipe(image).spec.published_name: image for image in planned.images if image.spec.own}
        references = planned.references
        run = references | {name: references[image.spec.published_name] for name, image in own.items()}
        with flavors.own_code(planned.config.flavor):
            objects = module.job(planned.config, run, nodes)
    else:
        objects = _indexed(planned, nodes, image)
    return yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=120)


def _indexed(planned: plan.Plan, nodes: int, name: str | None) -> list[dict[str, Any]]:
    gpus = slurm.gpus_per_node(planned, nodes)
    image = planned.image(name, planned.config.platform if planned.indexes else None)
    arch = None if image.index_reference else architecture(image.spec.platform)
    return indexed_job(planned.stack, image.index_reference or image.reference, arch, gpus, nodes)


def batch_script(stack: str, nodes: int, platform: str | None = None, image: str | None = None) -> str:
    """Return a batch script for Slurm that runs a stack's image on so many nodes.

    ``platform`` is that of the nodes, by default the stack's first. ``image`` is a name, by default the last's.

    Raises SlipwayError: the stack is wrong, it has no image to run, none with CUDA or none for the platform, or
    ``nodes`` is less than one.
    """
    planned = plan.make(stack)
    run = planned.image(image, platform or (planned.config.platform if planned.indexes else None))
    return slurm.script(planned, run, nodes)
