"""What a stack needs of this machine: `python -m toolchain.needs STACK [pushing] [building]` prints it as JSON.

`engine` tells whether it builds on a Docker engine of this machine, `registry` whether it pushes to the registry that
we start, `aws` whether it has resources in AWS, `kubernetes` whether it has some on a cluster, `cosign` and `syft`
whether it signs, or verifies parents or products, and lists packages, `grype` whether it scans; `parents` lists its
outside images, mirrors applied, and `platforms` those that the engine builds for.
"""

import json
import sys
from collections.abc import Sequence

from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks import plan
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.spec import ImageSpec, Outside


def local(config: StackConfig) -> bool:
    """Return whether a stack pushes to the registry that we start."""
    return config.publish and config.registry.of_this_machine


def outside_parents(config: StackConfig, specs: Sequence[ImageSpec]) -> list[str]:
    """Return the outside parents of a stack's images, mirrors applied."""
    parents = (parent for spec in specs for parent in spec.parents.values())
    outside = {parent.reference for parent in parents if isinstance(parent, Outside)}
    return sorted(str(Reference.of(config.pulled(reference)).in_full) for reference in outside)


def needs(stack: str, *, pushing: bool, building: bool) -> dict[str, object]:
    """Return the needs of a stack whose images are built or not, and pushed or not.

    Raises SlipwayError where its YAML is wrong.
    """
    config, specs = plan.resolve(stack)
    on_engine = bool(specs) and config.build_on == "engine"
    signing = config.signing if pushing and config.publish else None
    reuses = config.signing is not None and any(spec.product for spec in specs)
    platforms = config.every_platform if on_engine else ()
    built = [platform for platform in platforms if platform not in config.engines]
    to_ecr = config.publish and isinstance(config.registry, EcrRegistryConfig)
    return {
        "engine": on_engine,
        "registry": bool(specs) and local(config),
        "aws": to_ecr or isinstance(config.runners, Ec2RunnersConfig),
        "cosign": bool(config.trust) or signing is not None or reuses,
        "syft": signing is not None and signing.sbom,
        "grype": building and config.vulnerabilities is not None,
        "kubernetes": config.cluster_runners is not None,
        "platforms": built if pushing else [],
        "parents": outside_parents(config, specs),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(needs(sys.argv[1], pushing="pushing" in sys.argv[2:], building="building" in sys.argv[2:])))
    except SlipwayError as error:
        sys.exit("; ".join(str(error).splitlines()))
