"""Docker engines that a stack names by their release, and the images they cannot pull."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from containers.registry.reference import Reference
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.publishing.compression import ZstdConfig
from stacks.graph import Graph

_FIRST: Final = 23
"""The first release that reads zstd (Docker Engine 23.0 release notes, "Add support for zstd compressed image layers").
"""


def of_runners(graph: Graph) -> Iterator[str]:
    """Yield a message where the engine of the runners' jobs could not pull the stack's images."""
    runners, compression = graph.config.runners, graph.config.compression
    if not isinstance(compression, ZstdConfig) or not isinstance(runners, KubernetesRunnersConfig):
        return
    release = re.match(r"([0-9]+)\.[0-9]", Reference.of(runners.docker_image).tag)
    if release and int(release[1]) < _FIRST:
        yield (
            f"slipway:compression: Docker {_FIRST}.0 is the first that pulls layers of zstd, and "
            f"slipway:runners.dockerImage is '{runners.docker_image}': take a newer one there, or leave compression out"
        )
