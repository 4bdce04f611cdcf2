"""``runners: {kind: kubernetes}``: the charts, the image whose GPU checks the cluster runs, and Docker for jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from containers.errors import builds_no, one_line
from containers.registry.reference import Reference
from stacks.config.cluster.arc_config import ARC_CHARTS, check_arc
from stacks.config.cluster.validation_config import ValidationConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.publishing.compression import ZstdConfig
from stacks.graph import Graph
from stacks.spec import CONTEXT, context_path
from stacks.versions.nodes import node

_RELEASE = re.compile(r"""^appVersion:[ ]*["']?([0-9]+\.[0-9]+\.[0-9]+)["']?[ ]*$""", re.MULTILINE)
"""The release of ARC in a chart's Chart.yaml."""
ARC_CONTROLLERS = "app.kubernetes.io/part-of=gha-rs-controller"
"""Selects the Deployments of controllers (charts/gha-runner-scale-set-controller 0.14.2, templates/_helpers.tpl:59)."""
CONTROLLER_GONE = "docs/runners/kubernetes-upgrade-and-remove.md, A controller that is gone"
"""What to do without one."""
ARC_WATCHED = "actions.github.com/controller-watch-single-namespace"
"""The label of such a Deployment whose controller is for one namespace alone (templates/deployment.yaml there)."""
_WITHOUT_ZSTD = re.compile(r"(1[7-9]|20)(?![0-9])")
"""Tags of Docker's releases before 23.0, the first that reads zstd (Docker Engine 23.0 release notes, "Add support for
zstd compressed image layers"), such as ``20.10.24-dind`` and ``20-dind``."""
_GPU_CHECKS = "checks/gpu.py"
"""A script in an image's folder for the image's Python, run on GPUs. Not every image has one."""
_GPU_REPORT = "common/gpu/report.py"
"""The script, relative to the context, that runs those checks and reports what they measure."""


def missing_charts(graph: Graph) -> Iterator[str]:
    """Yield a message if the stack's folder of charts lacks a chart, or has one of too old a release."""
    runners = graph.config.cluster_runners
    if runners is None:
        return
    folder = runners.arc.charts
    needed = ARC_CHARTS[1:] if runners.arc.controller else ARC_CHARTS
    paths = [f"{folder}/{chart}/Chart.yaml" for chart in needed if folder]
    missing = [path for path in paths if not (graph.root / path).is_file()]
    if missing:
        yield (
            f"slipway:runners.arc.charts: '{one_line(folder)}': the checkout has no {' and no '.join(missing)}: "
            f"unpack {'both charts' if len(needed) > 1 else 'it'} there, or leave it out"
        )
    for path in paths if not missing else ():
        if release := arc_release(graph.root / path):
            try:
                check_arc(release)
            except ValueError as error:
                yield f"slipway:runners.arc.charts: '{one_line(folder)}': {path}: {release} {error}"


def serves(controller: Mapping[str, Any], namespace: str) -> bool:
    """Return whether the controller of a Deployment runs, and is for a namespace's scale sets."""
    watched = controller["metadata"].get("labels", {}).get(ARC_WATCHED, namespace)
    return watched == namespace and bool(controller.get("status", {}).get("availableReplicas"))


def arc_release(path: Path) -> str:
    """Return the release of ARC that a Chart.yaml names; empty if it names none, or is not there."""
    named = _RELEASE.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    return named[1] if named else ""


def unnamed_pools(graph: Graph) -> Iterator[str]:
    """Yield a message for each privileged pod that any node of the cluster may get: who is on it has the node."""
    runners = graph.config.cluster_runners
    if runners is None:
        return
    for key in runners.unpooled:
        part, other = (
            # What has no Docker API builds nothing of the stack.
            ("the build service", "" if graph.config.build_on == "runners" else ", or build.rootless: true")
            if key.startswith("build.")
            else (f"the Docker daemon beside each runner of profile {_profile(runners, key)}", _no_daemon(runners))
        )
        yield (
            f"slipway:runners.{key}: {part} is privileged, and would run on any node: give the labels of a pool for it "
            f"alone, such as {{acme.example/pool: builds}}{other}"
        )


def untainted_pools(graph: Graph) -> Iterator[str]:
    """Yield a message for each Docker daemon of a job on whose node a runner may be, too.

    The token of a runner of ``jobPods`` makes pods that may be privileged, wherever it says. No job runs beside it, but
    who has the node has the tokens on it. A runner tolerates no taint.
    """
    runners = graph.config.cluster_runners
    for own in runners.all_sets if runners else ():
        if own.job_daemon and not node(own.profile).tolerations and not own.tolerations:
            yield (
                f"slipway:runners.{own.key('tolerations')}: a job has the node of its Docker daemon, and with it the "
                "token of a runner there: give the pool a taint that keeps runners away, and here the same, or leave "
                "daemon out"
            )


def _no_daemon(runners: KubernetesRunnersConfig) -> str:
    return ", or leave daemon out" if runners.job_pods else ", or daemon: false"


def _profile(runners: KubernetesRunnersConfig, key: str) -> str:
    return next(own.profile for own in runners.all_sets if own.key("nodeSelector") == key)


def unused_build_service(graph: Graph) -> Iterator[str]:
    """Yield a message where neither jobs nor the stack's images build on the build service."""
    runners = graph.config.cluster_runners
    service = runners.build if runners else None
    if service and not service.jobs and graph.config.build_on != "runners":
        yield (
            "slipway:runners.build: nothing builds there: set build.jobs: true for jobs, or slipway:buildOn: runners "
            "for the stack's images, or leave build out"
        )


def shared_pool(graph: Graph) -> Iterator[str]:
    """Yield a message if a job can get to the node that builds the stack's images."""
    runners = graph.config.cluster_runners
    if graph.config.build_on == "runners" and runners and runners.shares_pool:
        yield (
            "slipway:runners.build.nodeSelector: these nodes may also get the Docker daemon beside a runner, which is "
            "privileged, and what is published is built on them: give it and nodeSelector one label with two values, "
            f"such as acme.example/pool{_no_daemon(runners)}"
        )


def validation_image(graph: Graph) -> Iterator[str]:
    """Yield a message for each reason why the cluster cannot run the image that it checks."""
    config, runners, validation = graph.config, graph.config.cluster_runners, _validation(graph)
    if runners is None or validation is None or not validation.is_stack_image:
        return
    key = "slipway:runners.validation.image"
    if validation.image not in graph.images:
        builds = builds_no(validation.image, graph.images)
        yield f"{key}: the stack {builds}; or give a reference with a tag or a digest"
        return
    if not config.publish:
        yield (
            f"{key}: '{validation.image}': slipway:publish is false, and no cluster can pull what is not pushed: leave "
            "out validation or publish: false, or give a reference with a tag or a digest"
        )
    if runners.platform not in config.every_platform:
        why = runners.platform_conflict(config.every_platform[0])
        yield f"{key}: '{validation.image}': {why}: leave out validation"
    if config.registry.of_this_machine and config.publish:
        host = Reference(config.registry.repository).host
        yield (
            f"{key}: '{validation.image}' is pushed to {host}, this machine's registry, which no cluster reaches: give "
            "slipway:registry another, or leave out validation"
        )


def missing_gpu_checks(graph: Graph) -> Iterator[str]:
    """Yield a message where the stack names no command, and the image to check has no script to run alone."""
    validation = _validation(graph)
    if validation is None or validation.command or validation.image not in graph.images:
        return
    path = _script(graph, validation)
    # Scripts with others beside them are started by torchrun on several GPUs; only one script gets to the cluster.
    if not path.is_file() or any(other != path for other in path.parent.glob("*.py")):
        yield (
            f"slipway:runners.validation.command: '{validation.image}' has no checks that run alone "
            f"({_GPU_CHECKS} beside its Dockerfile): give a command"
        )


def gpu_checks(graph: Graph) -> Mapping[str, str]:
    """Return the scripts of the cluster's check of an image, by name; none if it runs a command.

    The first one runs the second and reports its measurement.
    """
    validation = _validation(graph)
    if validation is None or validation.command:
        return {}
    paths = (context_path(CONTEXT, graph.root) / _GPU_REPORT, _script(graph, validation))
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def _validation(graph: Graph) -> ValidationConfig | None:
    return graph.config.cluster_runners.validation if graph.config.cluster_runners else None


def _script(graph: Graph, validation: ValidationConfig) -> Path:
    by_name = {spec.name: spec for spec in graph.specs}
    spec = next(spec for spec in graph.specs if spec.published_name == validation.image)
    while spec.own:  # it is checked as what it stands on
        spec = by_name[spec.siblings[0]]
    return context_path(spec.context, graph.root) / Path(spec.dockerfile).parent / _GPU_CHECKS


def old_engine(graph: Graph) -> Iterator[str]:
    """Yield a message where the engine of the runners' jobs could not pull the stack's images."""
    runners = graph.config.cluster_runners
    if runners is None or not isinstance(graph.config.compression, ZstdConfig):
        return
    if _WITHOUT_ZSTD.match(Reference.of(runners.docker_image).tag):
        yield (
            "slipway:compression: Docker 23.0 is the first that pulls layers of zstd, and "
            f"slipway:runners.dockerImage is '{runners.docker_image}': take a newer one there, or leave compression out"
        )
