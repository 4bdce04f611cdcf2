"""A report of runners as OpenMetrics, and a Grafana dashboard of these metrics: both from one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cli.runners.runner_status import RunnersReport
from scaler.waiting import CAUSES, STEPS

_PREFIX: Final = "slipway_runners"

Sample = tuple[Mapping[str, str], float]


class _Metric(NamedTuple):
    """A gauge: the end of its name, its unit, what it says, its samples of a report, and how a dashboard adds them."""

    name: str
    unit: str
    help: str
    samples: Callable[[RunnersReport], Iterable[Sample]]
    query: str

    @property
    def full_name(self) -> str:
        return f"{_PREFIX}_{self.name}"


def _by_step(report: RunnersReport) -> Iterator[Sample]:
    for step in STEPS:
        yield {"step": step}, sum(job.step == step for job in report.jobs)


def _by_cause(report: RunnersReport) -> Iterator[Sample]:
    for cause in CAUSES:
        yield {"cause": cause}, sum(job.kind == cause for job in report.waiting)


def _longest(report: RunnersReport) -> Iterator[Sample]:
    for cause in CAUSES:
        waits = [report.at - job.since for job in report.waiting if job.kind == cause and job.since]
        yield {"cause": cause}, round(max(0.0, *waits), 1) if waits else 0


_METRICS: Final = (
    _Metric("jobs", "", "Jobs by the last step that they have passed.", _by_step, "sum by (step) ({})"),
    _Metric("waiting_jobs", "", "Jobs that wait, by the cause.", _by_cause, "sum by (cause) ({})"),
    _Metric(
        "longest_wait_seconds",
        "seconds",
        "How long the job has waited that has waited longest, by the cause.",
        _longest,
        "max by (cause) ({})",
    ),
    _Metric(
        "troubles",
        "",
        "What keeps all jobs from coming further.",
        lambda report: [({}, len(report.troubles))],
        "sum by (stack) ({})",
    ),
    _Metric(
        "reservation_left_seconds",
        "seconds",
        "How long a reservation of these runners still lasts.",
        lambda report: [({"reservation": name}, round(ends - time.time())) for name, ends in report.reserved.items()],
        "min by (reservation) ({})",
    ),
    _Metric(
        "report_age_seconds",
        "seconds",
        "How old what is reported is.",
        lambda report: [({}, round(max(time.time() - report.at, 0), 1))],
        "max by (stack) ({})",
    ),
)


def openmetrics(report: RunnersReport) -> str:
    """Return a report as OpenMetrics (the standard's text format 1.0.0); each sample has the stack and the kind."""
    lines = []
    for metric in _METRICS:
        lines.append(f"# TYPE {metric.full_name} gauge")
        lines += [f"# UNIT {metric.full_name} {metric.unit}"] if metric.unit else []
        lines.append(f"# HELP {metric.full_name} {metric.help}")
        for labels, value in metric.samples(report):
            every = {"stack": report.stack, "kind": report.kind, **labels}
            text = ",".join(f'{name}="{_escaped(label)}"' for name, label in every.items())
            lines.append(f"{metric.full_name}{{{text}}} {value:g}")
    return "\n".join([*lines, "# EOF", ""])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def dashboard() -> dict[str, Any]:
    """Return a dashboard for Grafana: a panel for each metric, of the stacks that its reader chooses."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number,
            "title": metric.help.removesuffix("."),
            "type": "timeseries",
            "datasource": source,
            "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": "s" if metric.unit else "short", "min": 0}, "overrides": []},
            "targets": [
                {
                    "refId": "A",
                    "expr": metric.query.format(f'{metric.full_name}{{stack=~"$stack"}}'),
                    "legendFormat": "{{cause}}{{step}}{{reservation}}",
                }
            ],
        }
        for number, metric in enumerate(_METRICS)
    ]
    stacks = {"query": f"label_values({_METRICS[0].full_name}, stack)", "refId": "stacks"}
    variables = [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "stack",
            "label": "Stack",
            "type": "query",
            "datasource": source,
            "query": stacks,
            "multi": True,
            "includeAll": True,
            "refresh": 2,
        },
    ]
    return {
        "title": "Slipway runners",
        "uid": "slipway-runners",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "tags": ["slipway"],
        "templating": {"list": variables},
        "panels": panels,
    }
