"""Why a job waits: how far each job has come, and the cause where it stands. Pure functions: no clock, no network.

A machine of EC2 and a pod of Kubernetes are both a :class:`RunnerPlace` here, so both kinds have the same causes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

STEPS: Mapping[str, str] = {
    "queued": "GitHub has queued the job",
    "assigned": "these runners know of the job",
    "requested": "a machine or a pod was requested for it",
    "booted": "the machine or the pod runs",
    "registered": "its runner is online at GitHub",
    "started": "the runner has the job",
}
"""What a job passes on its way, in order, and what each means."""

CAUSES: Mapping[str, str] = {
    "starting": "nothing is wrong: what it needs is on its way",
    "limit": "maxRunners is reached: it waits for the end of another job",
    "capacity": "there is no node or machine for it at the time",
    "quota": "a quota of the cloud or of the namespace is used up",
    "label": "no runner here has its labels, or its repository may not use them",
    "github": "GitHub does not answer, or has not given it out",
    "image": "an image cannot be pulled, or does not exist",
    "driver": "the driver of the node or its devices do not work",
    "controller": "what asks for runners does not run: ARC, or the keeper",
    "late": "its machine or pod is not up in time, and nothing says why",
    "refused": "something else was refused; the text says what",
}
"""The kinds of causes, and what each means."""

_SIGNS = (
    ("quota", r"exceeded quota|LimitExceeded|vCPU capacity than your current|[Mm]ax(imum)? spot instance count|quota"),
    (
        "image",
        r"ErrImage|ImagePull|InvalidImageName|ImageInspect|manifest unknown|pull access denied|image id .* not exist",
    ),
    ("driver", r"nvidia-container-cli|libnvidia|NVML|CUDA driver|driver/library|UnexpectedAdmissionError"),
    ("github", r"GitHub (answers|does not answer)|api\.github\.com|pipelines\.actions|registration token"),
    (
        "capacity",
        r"[Ii]nsufficient|nodes? (are|is) available|[Cc]apacity|NotTriggerScaleUp|max node group size|incompatible",
    ),
)
"""What Kubernetes, EC2 Auto Scaling, ARC and autoscalers say, by the kind of cause; the first that fits counts."""


@dataclass(frozen=True)
class WaitingJob:
    """A job: its id, when GitHub queued it, and when these runners learned of it, in seconds since 1970.

    It is ``left`` if GitHub gave it to none of these runners while one was idle. ``about`` says more of it.
    """

    id: str
    queued: float | None = None
    assigned: float | None = None
    left: bool = False
    about: str = ""


@dataclass(frozen=True)
class RunnerPlace:
    """A machine or a pod for one job: the steps that it has passed, each with its time if known.

    ``signs`` are what is said of it if it does not come up. ``job`` is the one that it has.
    """

    id: str
    passed: Mapping[str, float | None]
    signs: Sequence[str] = ()
    job: WaitingJob | None = None


@dataclass(frozen=True)
class Surroundings:
    """What all jobs share.

    ``most`` is the highest number of places, and ``boot`` the seconds in which one comes up. ``signs`` are what was
    refused without a place. ``github`` says why GitHub is not reached, and ``controller`` why nothing asks for places.
    """

    most: int
    boot: float
    signs: Sequence[str] = ()
    github: str = ""
    controller: str = ""


@dataclass(frozen=True)
class Standing:
    """How far a job has come, and why it is no further.

    ``step`` is the last step that it has passed. ``kind`` is one of :data:`CAUSES`, and empty once it has started.
    """

    job: str
    place: str
    step: str
    kind: str
    cause: str
    times: Mapping[str, float | None] = field(default_factory=dict)
    about: str = ""

    @property
    def since(self) -> float | None:
        """Since when the job waits."""
        return self.times.get("queued") or self.times.get("assigned") or self.times.get("requested")


def standings(
    now: float, jobs: Sequence[WaitingJob], places: Sequence[RunnerPlace], around: Surroundings
) -> list[Standing]:
    """Return how far each job has come: first the waiting jobs, the longest first, then the ones with a runner.

    GitHub gives a job to any runner. So the longest waiting job counts as the job of the place that has come furthest.
    """
    free = sorted((each for each in places if each.job is None), key=_way_to_go)
    standing = []
    for job in sorted(jobs, key=lambda each: (each.left, each.queued or each.assigned or now)):
        place = free.pop(0) if free and not job.left else None
        kind, cause = _cause(now, job, place, around, full=len(places) >= around.most)
        standing.append(_standing(job, place, kind, cause))
    given = [(each.job, each) for each in places if each.job is not None]
    # A job in a pod of its own has its runner before it has its pod.
    causes = [("", "") if "started" in place.passed else _of_place(now, place, around) for _, place in given]
    return [*standing, *(_standing(job, place, *why) for (job, place), why in zip(given, causes, strict=True))]


def serves(own: Sequence[str], required: Sequence[str]) -> bool:
    """Return whether runners with their ``own`` labels take a job with the ``required`` ones; GitHub ignores case."""
    return {*map(str.lower, own)} >= {*map(str.lower, required)}


def with_queue(
    known: Sequence[Standing], queue: Sequence[tuple[WaitingJob, Sequence[str]]], served: Sequence[Sequence[str]]
) -> list[Standing]:
    """Return standings with those jobs of GitHub's ``queue``, each with its labels, of which these runners do not know.

    ``known`` is how far the jobs have come of which they know, ``served`` the labels of each of their sets.
    """
    names = {each.job for each in known}
    there = "; or ".join(", ".join(own) for own in served)
    more = []
    for job, labels in queue:
        kind, cause = (
            ("github", "GitHub has queued it, and these runners have not been told: does the webhook arrive?")
            if any(serves(own, labels) for own in served)
            else ("label", f"no runner of this stack has the labels {', '.join(labels)}; they have {there}")
        )
        if job.id not in names:
            more.append(_standing(replace(job, assigned=None), None, kind, cause))
    return [*more, *known]


def as_json(standing: Sequence[Standing]) -> list[dict[str, Any]]:
    """Return standings as JSON."""
    return [{**vars(each), "times": dict(each.times)} for each in standing]


def _way_to_go(place: RunnerPlace) -> tuple[int, float]:
    return -len(place.passed), place.passed.get("requested") or 0.0


def _standing(job: WaitingJob, place: RunnerPlace | None, kind: str, cause: str) -> Standing:
    passed = place.passed if place else {}
    times: dict[str, float | None] = {"queued": job.queued}
    times |= {"assigned": job.assigned} if place or job.assigned is not None else {}
    times |= {step: passed[step] for step in STEPS if step in passed}
    step = "queued"
    for each in STEPS:
        if each not in times:
            break
        step = each
    return Standing(job.id, place.id if place else "", step, kind, cause, times, job.about)


def _cause(
    now: float, job: WaitingJob, place: RunnerPlace | None, around: Surroundings, *, full: bool
) -> tuple[str, str]:
    """Return the kind and the text of why a job has not started; one of the first that is true."""
    if job.left:
        return "label", "GitHub gave it to no runner here while one was idle: may the runner group its repository?"
    if place and "registered" in place.passed:
        return "github", around.github or f"the runner of {place.id} is ready, and GitHub has not given it the job yet"
    if place:
        return _of_place(now, place, around)
    if around.controller:
        return "controller", around.controller
    if full:
        return "limit", f"all {around.most} runners of maxRunners are there and have other jobs"
    if around.signs:
        return classified(around.signs)
    if around.github:
        return "github", around.github
    return "starting", "a machine or a pod is requested for it next"


def _of_place(now: float, place: RunnerPlace, around: Surroundings) -> tuple[str, str]:
    """Return why a place has no runner yet."""
    if place.signs:
        return classified(place.signs)
    if around.github:
        return "github", f"whether the runner of {place.id} is up is not known: {around.github}"
    waited = now - (place.passed.get("requested") or now)
    step = "its runner starts" if "booted" in place.passed else "it comes up"
    step = "the pod of its job comes up" if place.job else step
    if waited > around.boot:
        return "late", f"{place.id} was requested {_minutes(waited)} ago, and no runner of it is online: see its log"
    return "starting", f"{place.id} was requested {_minutes(waited)} ago: {step}"


def classified(signs: Sequence[str]) -> tuple[str, str]:
    """Return the kind of cause in some signs, and the first sign of it."""
    for kind, pattern in _SIGNS:
        for sign in signs:
            if re.search(pattern, sign):
                return kind, sign
    return "refused", signs[0]


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)} min"
