"""How far each job of a stack's runners has come, and why it waits: the same for both kinds of runners."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cli.runners.cluster_jobs import cluster_jobs
from cli.runners.keeper_report import keeper_report
from cli.runners.reserved_machines import reservation_ends
from cli.text_table import aligned
from containers.errors import MALFORMED, SlipwayError, one_line
from scaler.github import REPOSITORY, GitHub, Refused
from scaler.waiting import (
    STEPS,
    RunnerPlace,
    Standing,
    Surroundings,
    WaitingJob,
    as_json,
    serves,
    standings,
    with_queue,
)
from stacks import graph
from stacks.config import github_url
from stacks.config.ec2 import Ec2RunnersConfig, old_runners
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_file import other_settings, read_stack
from stacks.versions.checksums import SOON

TOKENS: Final = ("GH_TOKEN", "GITHUB_TOKEN")
"""Variables with a token for GitHub, as its own command has them."""

_SECONDS: Final = 60.0
"""Seconds for all that GitHub is asked."""
_LATE: Final = 180.0
"""Seconds after which the keeper, which looks each minute, counts as silent."""

Queue = list[tuple[WaitingJob, Sequence[str]]]


@dataclass(frozen=True)
class RunnersReport:
    """The jobs of a stack's runners, when they were looked at, and what keeps all of them from coming further.

    ``reserved`` are the ends of their reservations by id, in seconds since 1970.
    """

    stack: str
    kind: str
    at: float
    jobs: Sequence[Standing]
    troubles: Sequence[str]
    reserved: Mapping[str, float] = field(default_factory=dict)

    @property
    def waiting(self) -> list[Standing]:
        """The jobs that have not started."""
        return [job for job in self.jobs if job.kind]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON; times are in seconds since 1970."""
        return {
            "stack": self.stack,
            "kind": self.kind,
            "at": self.at,
            "jobs": as_json(self.jobs),
            "troubles": list(self.troubles),
            "reservations": dict(self.reserved),
        }


def report(stack: str, root: Path, repository: str | None = None) -> RunnersReport:
    """Return the report of a stack's runners.

    GitHub is asked for the queue of ``repository``, ``owner/name``, with a token of :data:`TOKENS`. Default: that of
    ``runners.github.url``, if it names a repository and there is a token.

    Raises SlipwayError: there is no such stack or it has no runners, or the cluster, AWS or GitHub refuses.
    """
    config = graph.unlocked(read_stack(stack, root), f"stack {stack}", root).config
    runners = config.runners
    if runners is None:
        raise SlipwayError(f"stack {stack} has no runners: give it slipway:runners, or name a stack that has them")
    queue, troubles = _queue(runners.github.url, repository)
    troubles += _old_runners(runners.github.url, runners.runner_releases, repository)
    profile = other_settings(stack, {"aws"}, root).get("aws:profile")
    ends = reservation_ends(runners, profile)
    reserved = {each.id: each.ends.timestamp() for each in ends if each.ends}
    troubles += [line for each in ends for line in each.troubles]
    now = time.time()
    if isinstance(runners, Ec2RunnersConfig):
        shown = _of_machines(stack, runners, config.platform, profile, queue, now, troubles)
    else:
        shown = _of_cluster(stack, runners, queue, now, troubles)
    return replace(shown, reserved=reserved)


def _of_machines(
    stack: str,
    runners: Ec2RunnersConfig,
    platform: str,
    profile: str | None,
    queue: Queue | None,
    now: float,
    troubles: list[str],
) -> RunnersReport:
    reports = [keeper_report(stack, own, profile) for own in runners.all_sets]
    at = min(looked for looked, _ in reports)
    known = [job for _, jobs in reports for job in jobs]
    if now - at > _LATE:
        troubles.append(
            f"the keeper last looked {int((now - at) // 60)} min ago: `aws logs tail --region {runners.region} "
            f"/slipway-{stack}/keeper` says why"
        )
    served = [own.served_labels(platform) for own in runners.all_sets]
    foreign = list(queue or ())
    for own, labels, (_, jobs) in zip(runners.all_sets, served, reports, strict=True) if runners.listens else ():
        queued = [each for each in foreign if serves(labels, each[1])]
        foreign = [each for each in foreign if each not in queued]
        told = [  # GitHub may have given them to any set that serves them
            job
            for other, (_, theirs) in zip(served, reports, strict=True)
            for job in theirs
            if any(serves(other, required) for _, required in queued)
        ]
        known += _unassigned(own, jobs, told, [job for job, _ in queued], now)
    known.sort(key=lambda each: (not each.kind, each.since or now))
    return RunnersReport(stack, runners.kind, at, with_queue(known, foreign, served), troubles)


def _unassigned(
    own: Ec2RunnersConfig, known: Sequence[Standing], all_told: Sequence[Standing], queued: list[WaitingJob], now: float
) -> list[Standing]:
    """Return how far those jobs of a repository's queue have come that GitHub has not assigned to their set.

    It tells the sets of the others, ``all_told``, by other numbers, the longest waiting first.
    """
    repositories = {"", *(job.about.partition(" ")[0] for job in queued)}
    told = sum(bool(job.kind and not job.job) and job.about in repositories for job in all_told)
    names = {job.job for job in all_told}  # those of a webhook
    rest = sorted((job for job in queued if job.id not in names), key=lambda job: job.queued or now)[told:]
    places = [RunnerPlace(job.place, {}, job=WaitingJob("")) for job in known if job.place]
    around = Surroundings(own.max_runners, 0.0, github="GitHub has queued it, and not assigned it to these runners yet")
    return standings(now, rest, places, around)[: len(rest)]


def _of_cluster(
    stack: str, runners: KubernetesRunnersConfig, queue: Queue | None, now: float, troubles: list[str]
) -> RunnersReport:
    known: list[Standing] = []
    served: list[Sequence[str]] = []
    foreign = list(queue or ())
    for own in runners.all_sets:
        jobs, places, around = cluster_jobs(stack, own)
        labels = (own.scale_set, *own.labels)
        served.append(labels)
        if queue is not None:
            jobs = [job for job, required in foreign if serves(labels, required)]
            foreign = [each for each in foreign if each[0] not in jobs]
        standing = standings(now, jobs, places, around)
        used = {each.place for each in standing}
        troubles += [around.controller] * bool(around.controller and not jobs)
        troubles += [f"{place.id}: {place.signs[0]}" for place in places if place.signs and place.id not in used]
        known += standing
    known.sort(key=lambda each: (not each.kind, each.since or now))
    return RunnersReport(stack, runners.kind, now, with_queue(known, foreign, served), [*dict.fromkeys(troubles)])


def _queue(url: str, repository: str | None) -> tuple[Queue | None, list[str]]:
    """Return what GitHub has queued for a repository; None, and why, if it was not asked or does not answer."""
    owner, name = (github_url.part(url, part) for part in ("owner", "name"))
    token = _token()
    if repository and not REPOSITORY.fullmatch(repository):
        raise SlipwayError(f"--repository '{one_line(repository)}': expected OWNER/NAME, such as acme/images")
    if repository and not token:
        raise SlipwayError(f"--repository {repository}: GitHub is asked with a token: set {TOKENS[0]}")
    where = repository or (f"{owner}/{name}" if name else "")
    if not where or not token:
        needed = [*(["--repository OWNER/NAME"] if not where else []), *([TOKENS[0]] if not token else [])]
        missing = "GitHub's queue was not read, which has jobs with wrong labels and beyond maxRunners"
        return None, [f"{missing}: give {' and '.join(needed)}"]
    api = GitHub(github_url.api(url), where, lambda: {"token": token}, time.time() + _SECONDS)
    try:
        return [(_queued(job, where), [*map(str, job["labels"])]) for job in api.queue(where)], []
    except Refused as error:
        return None, [f"{one_line(str(error), 300)}: jobs of which the runners do not know are missing here"]
    except MALFORMED as error:
        return None, [f"GitHub's queue has another shape than documented: {type(error).__name__}"]


def _old_runners(url: str, releases: Mapping[str, str], repository: str | None) -> list[str]:
    """Return a line for each release of the runners that gets no job soon: GitHub's own day, else that of its rule."""
    lines = {line.partition(": ")[0]: line for line in old_runners(url, releases)}
    owner, name = (github_url.part(url, part) for part in ("owner", "name"))
    scope = f"{owner}/{name}" if name else repository or owner
    token = _token()
    if not token or not scope or not github_url.in_cloud(url):
        return [*lines.values()]
    api = GitHub(github_url.api(url), scope, lambda: {"token": token}, time.time() + _SECONDS)
    for key, release in releases.items():
        with suppress(Refused, *MALFORMED):
            ends = api.ends(release)
            soon = ends is not None and datetime.fromisoformat(ends) - datetime.now(UTC) < SOON
            lines.pop(key, None)
            if soon:
                lines[key] = f"{key}: GitHub gives runners of release {release} no job from {ends} on"
    return [*lines.values()]


def _token() -> str | None:
    return next((value for variable in TOKENS if (value := os.environ.get(variable))), None)


def _queued(job: dict[str, Any], repository: str) -> WaitingJob:
    queued = datetime.fromisoformat(job["created_at"]).timestamp()
    return WaitingJob(str(int(job["id"])), queued, about=f"{repository} {one_line(job['name'])}")


def lines(report: RunnersReport) -> list[str]:
    """Return a report as lines of text: a table of the steps, and below each waiting job its cause."""
    waiting = len(report.waiting)
    head = f"stack {report.stack}: {len(report.jobs) - waiting} jobs run, {waiting} wait"
    rows = [
        (one_line(f"{job.job} {job.about}".strip() or "?", 60), *(_when(job, step) for step in STEPS), job.place or "-")
        for job in report.jobs
    ]
    table = [*aligned([("JOB", *map(str.upper, STEPS), "RUNNER"), *rows])] if rows else []
    text = [head, *table[:1]]
    for job, line in zip(report.jobs, table[1:], strict=True):
        text += [line, *([f"  {job.kind}: {job.cause}"] if job.kind else [])]
    return [*text, *report.troubles]


def _when(job: Standing, step: str) -> str:
    if step not in job.times:
        return "-"
    when = job.times[step]
    return "yes" if when is None else datetime.fromtimestamp(when).astimezone().strftime("%H:%M:%S")
