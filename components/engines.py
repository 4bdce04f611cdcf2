"""The Docker engines for a stack's images, if its configuration names them or replicas of a build service.

The provider of a platform has one address, a socket in the checkout, whichever engines there are. So an added, moved or
removed engine changes no resource and shows in no preview.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING

from pulumi.runtime.config import CONFIG

from containers.errors import SlipwayError
from stacks.config.builders import build_key, taking
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.placement import address
from stacks.plan import Plan
from stacks.platforms import OF_MACHINES

if TYPE_CHECKING:
    from containers.engine.pool import Pool
    from containers.engine.replicas import Replicas


def start(plan: Plan, root: Path) -> dict[str, Replicas]:
    """Check all engines of a plan, and forward what arrives at the addresses to them, until the program ends.

    ``plan`` has the copies that each engine builds, as :attr:`stacks.placement.Placement.built`.
    An engine that does not answer is no error yet: there may be nothing to build on it. Replicas of a build service are
    returned by platform. They may be part of what the update makes, and learn their certificates from it.

    Raises:
        SlipwayError: an engine cannot run the programs of its platform, one line for each; or a socket cannot be made.
    """
    checks = list(_of_this_machine(plan))
    serving: list[Callable[[], None]] = []
    shared: dict[str, Replicas] = {}
    own = {platform: pool for platform, pool in pools(plan).items() if platform == pool.platform}
    if own:
        from containers.engine.replicas import Replicas  # noqa: PLC0415 - few stacks have any
        from containers.engine.router import Router  # noqa: PLC0415 - few stacks name engines

        router = Router(root)
        for platform, pool in own.items():
            serving.append(partial(router.serve, address(plan.stack, platform), pool))
            if isinstance(pool, Replicas):
                shared[platform] = pool
            else:
                checks += [partial(pool.refusal, engine) for engine in pool.engines]
    if checks:
        with ThreadPoolExecutor(len(checks)) as threads:
            mistakes = [line for line in threads.map(lambda check: check(), checks) if line]
        if mistakes:
            raise SlipwayError("\n".join(mistakes))
    for serve in serving:
        serve()
    return shared


def pools(plan: Plan) -> dict[str, Pool]:
    """Return the pool for the images of each platform, if it is configured or the builders are several.

    An image that is the same for all platforms may have a platform of no pool. The runners' own takes it.
    """
    config = plan.config
    by_platform: dict[str, Pool] = {}
    if config.engines:
        from containers.engine.pool import Pool  # noqa: PLC0415 - few stacks name engines

        running = _running(plan)
        for platform, engines in config.engines.items():
            images, runs_programs = plan.names_for(platform), platform in running
            together = not config.publish
            by_platform[platform] = Pool(platform, engines, images, runs_programs=runs_programs, together=together)
    if config.build_on == "runners" and config.cluster_runners:
        by_platform = _replicas(plan, config.cluster_runners) | by_platform
    return by_platform


def _replicas(plan: Plan, runners: KubernetesRunnersConfig) -> dict[str, Pool]:
    several = [platform for platform, pool in runners.build_pools.items() if pool.replicas > 1]
    if runners.build is None or not several:
        return {}
    from components.runners.kubernetes import build_service  # noqa: PLC0415 - as above
    from containers.engine.replicas import Replicas  # noqa: PLC0415 - few stacks have any

    builds = {
        image.spec.platform: taking(runners.build_pools, image.spec.platform)
        for image in plan.images
        if image.spec.platform not in plan.config.engines
    }
    addresses = build_service.addresses(runners, runners.build)
    by_platform: dict[str, Pool] = {}
    for platform in several:
        images = [name for one, at in builds.items() if at == platform for name in plan.names_for(one)]
        together, key = not plan.config.publish, f"slipway:runners.{build_key(platform, runners.platform)}"
        pool = Replicas(platform, addresses[platform], images, together=together, key=key)
        by_platform |= {one: pool for one, at in builds.items() if at == platform} | {platform: pool}
    return by_platform


def _running(plan: Plan) -> set[str]:
    """Return the platforms whose programs run while the images are built."""
    return {image.spec.platform for image in plan.images if image.content.runs_programs}


def _of_this_machine(plan: Plan) -> Iterator[Callable[[], str]]:
    """Yield a check for each platform with programs on the engine that the docker client uses.

    An engine on this machine runs this machine's own. It is not asked about them, so that most updates take no time
    for it.
    """
    config, running = plan.config, _running(plan)
    if config.build_on != "engine":
        return
    host = CONFIG.get().get("docker:host", "")
    local = (host or os.environ.get("DOCKER_HOST", "unix://")).startswith("unix://")
    own = OF_MACHINES.get(machine()) if local else None
    key = "slipway:platforms" if config.platforms else "slipway:platform"
    for platform in config.every_platform:
        if platform in running and platform not in config.engines and platform != own:
            yield partial(_refusal, platform, host, key)


def _refusal(platform: str, host: str, key: str) -> str:
    from containers.engine.engine_platforms import CannotRun, check_runnable  # noqa: PLC0415 - most stacks are for this machine

    try:
        check_runnable([platform], host, key=key)
    except CannotRun as error:
        return str(error)
    except SlipwayError:  # what is built there says so
        return ""
    return ""
