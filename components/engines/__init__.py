"""The Docker engines that build a stack's images, where its configuration names them or replicas of a build service.

The provider of a platform has one address, a socket in the checkout, whichever engines there are. So an engine that is
added, that moves or that is gone changes no resource and shows in no preview.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING, Final

from stacks.config.kubernetes import KubernetesRunners
from stacks.config.stack_config import StackConfig
from stacks.errors import SlipwayError
from stacks.plan import Plan
from stacks.platforms import OF_MACHINES, architecture
from stacks.versions.nodes import node

if TYPE_CHECKING:
    from components.engines.replicas import Replicas

FOLDER: Final = ".slipway/engines"
"""The folder of the sockets, relative to the checkout, where the program and the provider run."""


def address(stack: str, platform: str) -> str:
    """Return the address of a platform's engines for the docker provider."""
    return f"unix://{FOLDER}/{stack}-{architecture(platform)}.sock"


def shared_address(stack: str) -> str:
    """Return the address of the replicas of the stack's build service for the docker provider."""
    return f"unix://{FOLDER}/{stack}-runners.sock"


def start(plan: Plan, root: Path) -> Replicas | None:
    """Check all engines of a plan, and forward what arrives at the addresses to them, until the program ends.

    An engine that does not answer is no error yet: there may be nothing to build on it. Replicas of a build service are
    returned. They may be part of what the update makes, and learn their certificates from it.

    Raises:
        SlipwayError: an engine cannot run the programs of its platform, one line for each; or a socket cannot be made.
    """
    running = {image.spec.platform for image in plan.images if image.content.runs_programs}
    checks = list(_of_this_machine(plan.config, running))
    serving: list[Callable[[], None]] = []
    shared = shared_replicas(plan)
    if plan.config.engines or shared:
        from components.engines.pool import Pool  # noqa: PLC0415 - few stacks name engines
        from components.engines.router import Router  # noqa: PLC0415 - as above

        router, together = Router(root), not plan.config.publish
        for platform, engines in plan.config.engines.items():
            runs_programs = platform in running
            images = plan.names_for(platform)
            pool = Pool(platform, engines, images, runs_programs=runs_programs, together=together)
            checks += [partial(pool.refusal, engine) for engine in engines]
            serving.append(partial(router.serve, address(plan.stack, platform), pool))
        if shared:
            serving.append(partial(router.serve, shared_address(plan.stack), shared))
    if checks:
        with ThreadPoolExecutor(len(checks)) as threads:
            mistakes = [line for line in threads.map(lambda check: check(), checks) if line]
        if mistakes:
            raise SlipwayError("\n".join(mistakes))
    for serve in serving:
        serve()
    return shared


def shared_replicas(plan: Plan) -> Replicas | None:
    """Return the replicas of the build service that build a plan's images; None where there are not several."""
    config = plan.config
    runners = config.runners
    if config.build_on != "runners" or not isinstance(runners, KubernetesRunners) or runners.build is None:
        return None
    if runners.build.replicas == 1:
        return None
    from components.engines.replicas import Replicas  # noqa: PLC0415 - few stacks have any
    from components.runners.kubernetes import build_service  # noqa: PLC0415 - as above

    # A product that is the same for all platforms may have a platform that is none of the stack's.
    images = [image.spec.published_name for image in plan.images if image.spec.platform not in config.engines]
    platform = f"linux/{node(runners.profile).arch}"
    addresses = build_service.addresses(runners, runners.build)
    return Replicas(platform, addresses, images, together=not config.publish)


def _of_this_machine(config: StackConfig, running: Collection[str]) -> Iterator[Callable[[], str]]:
    """Yield a check for each platform whose programs the engine runs that the docker client uses.

    An engine on this machine runs this machine's own. It is not asked about them, so that most updates take no time
    for it.
    """
    if config.build_on != "engine":
        return
    local = os.environ.get("DOCKER_HOST", "unix://").startswith("unix://")
    own = OF_MACHINES.get(machine()) if local else None
    key = "slipway:platforms" if config.platforms else "slipway:platform"
    for platform in config.every_platform:
        if platform in running and platform not in config.engines and platform != own:
            yield partial(_refusal, platform, key)


def _refusal(platform: str, key: str) -> str:
    from oci.engine_platforms import CannotRun, check_runnable  # noqa: PLC0415 - most stacks are for this machine

    try:
        check_runnable([platform], key=key)
    except CannotRun as error:
        return str(error)
    except SlipwayError:  # what is built there says so
        return ""
    return ""
