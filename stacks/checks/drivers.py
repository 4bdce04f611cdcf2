"""NVIDIA's driver where the runners run the stack's images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from containers.image.gpu.release_order import line, older
from stacks.graph import Graph
from stacks.spec import Cuda, ImageSpec
from stacks.versions.cuda_toolkit import line_driver, older_branches


def too_old(graph: Graph) -> Iterator[str]:
    """Yield a message for each CUDA of the stack's images that the driver of its runners does not run."""
    for driver, key in dict.fromkeys(_drivers(graph)):
        for clause in unfit(graph.specs, driver):
            yield (
                f"slipway:runners.{key}: {clause}: give the runners a newer driver and say so in "
                "slipway:runners.driver, or the stack an older CUDA"
            )


def _drivers(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the drivers of the runners' nodes, and the keys that say so."""
    runners = graph.config.runners
    for own in runners.all_sets if runners else ():
        if known := own.nodes_driver:
            yield known[0], own.key(known[1])


def unfit(specs: Iterable[ImageSpec], driver: str) -> Iterator[str]:
    """Yield a clause for each CUDA of some images that a driver does not run, with the images and their needs."""
    images: defaultdict[Cuda, list[str]] = defaultdict(list)
    for spec in specs:
        if spec.cuda and not spec.product and not _runs(driver, spec.cuda):
            images[spec.cuda].append(spec.published_name)
    for cuda, names in images.items():
        yield (
            f"driver {driver} does not run {' and '.join(dict.fromkeys(names))} with CUDA {cuda.version}, which needs "
            f"{_needed(cuda)}"
        )


def _runs(driver: str, cuda: Cuda) -> bool:
    """Return whether a container starts with a driver, or with the one that a release line of CUDA came with."""
    if not cuda.forward:
        return cuda.least_driver is None or not older(driver, cuda.least_driver)
    own = line_driver(line(cuda.version))
    return own is None or not older(driver, own) or int(driver.partition(".")[0]) in older_branches(line(cuda.version))


def _needed(cuda: Cuda) -> str:
    if not cuda.forward:
        return f"{cuda.least_driver} or newer"
    own, branches = line_driver(line(cuda.version)), older_branches(line(cuda.version))
    if not branches:
        return f"{own} or newer"
    first, last = branches[0], branches[-1]
    listed = f"{first} to {last}" if isinstance(branches, range) else ", ".join(map(str, branches))
    return f"{own} or newer, or a driver of one of the branches {listed}"
