"""A keeper's round's view of jobs and machines, in the form that :mod:`scaler.waiting` explains. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .decide import Machine, Rules, Runner
from .jobs import Job
from .waiting import RunnerPlace, Standing, Surroundings, WaitingJob, standings


def status(
    now: float,
    rules: Rules,
    jobs: Sequence[Job],
    machines: Sequence[Machine] | None,
    runners: Sequence[Runner] | None,
    prepared: Collection[str] | None,
    refusals: Mapping[str, Sequence[str]],
) -> list[Standing]:
    """Return how far each job has come; the arguments are those of :func:`scaler.decide.decide`.

    ``refusals`` are what AWS and GitHub refused in this round: by machine, and under ``machines``, ``runners`` and
    ``launches`` why the ones or the others could not be read, and why none was started. Without ``machines``, AWS says
    nothing of them.
    """
    by_machine = {runner.machine: runner for runner in runners or ()}
    around = Surroundings(
        most=rules.most,
        boot=rules.boot,
        signs=refusals.get("launches", ()),
        github="" if runners is not None else _first(refusals, "runners", "GitHub does not list the runners"),
        controller="" if machines is not None else _first(refusals, "machines", "AWS does not list the machines"),
    )
    places = [
        _place(machine, by_machine.get(machine.id), refusals.get(machine.id, ()))
        for machine in machines or ()
        if not (machine.gone or machine.leaving)
        # A runner for one job leaves GitHub with its job's end, and its machine ends then.
        and not (runners is not None and machine.id not in by_machine and prepared and machine.id in prepared)
    ]
    # GitHub tells a listener of assigned jobs by another number than that of its pages.
    waiting = [
        WaitingJob(
            str(job.id) if job.id > 0 else "", job.since, job.since, job.unassigned_since is not None, job.repository
        )
        for job in jobs
    ]
    return standings(now, waiting, places, around)


def _place(machine: Machine, runner: Runner | None, signs: Sequence[str]) -> RunnerPlace:
    passed: dict[str, float | None] = {"requested": machine.started}
    if machine.running:
        passed["booted"] = None
    if runner and (runner.online or runner.busy):
        passed |= {"booted": None, "registered": None}
    if runner and runner.busy:
        passed["started"] = None
    return RunnerPlace(machine.id, passed, signs, WaitingJob("") if runner and runner.busy else None)


def _first(refusals: Mapping[str, Sequence[str]], what: str, otherwise: str) -> str:
    return next(iter(refusals.get(what, ())), otherwise)
