"""What a stack needs of this machine: `python -m toolchain.needs STACK [pushing] [building]` prints it as JSON.

`engine` tells whether it builds on a Docker engine of this machine, `registry` whether it pushes to the registry that
we start, `aws` whether it has resources in AWS, `kubernetes` whether it has some on a cluster, `cosign` and `syft`
whether it signs, or verifies parents or products, and lists what images hold, `grype` whether it scans; `parents` lists
its outside images, mirrors applied, and `platforms` those that the engine builds for.
"""

import json
import sys

from containers.errors import SlipwayError
from containers.registry.reference import qualified
from stacks import plan
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.spec import Outside


def local(config: StackConfig) -> bool:
    """Return whether a stack pushes to the registry that we start."""
    return config.publish and config.registry.of_this_machine


def needs(stack: str, *, pushing: bool, building: bool) -> dict[str, object]:
    """Return the needs of a stack whose images are built or not, and pushed or not.

    Raises SlipwayError where its YAML is wrong.
    """
    config, specs = plan.resolve(stack)
    signs = config.signing is not None
    signing = config.signing if config.publish and pushing else None
    built = [platform for platform in config.every_platform if platform not in config.engines]
    outside = {p.reference for spec in specs for p in spec.parents.values() if isinstance(p, Outside)}
    return {
        "engine": bool(specs) and config.build_on == "engine",
        "registry": bool(specs) and local(config),
        "aws": isinstance(config.runners, Ec2RunnersConfig)
        or (config.publish and isinstance(config.registry, EcrRegistryConfig)),
        "cosign": bool(config.trust) or signing is not None or (signs and any(spec.product for spec in specs)),
        "syft": signing is not None and signing.sbom,
        "grype": building and config.vulnerabilities is not None,
        "kubernetes": isinstance(config.runners, KubernetesRunnersConfig),
        "platforms": built if specs and config.build_on == "engine" and pushing else [],
        "parents": sorted(qualified(config.pulled(reference)) for reference in outside),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(needs(sys.argv[1], pushing="pushing" in sys.argv[2:], building="building" in sys.argv[2:])))
    except SlipwayError as error:
        sys.exit("; ".join(str(error).splitlines()))
