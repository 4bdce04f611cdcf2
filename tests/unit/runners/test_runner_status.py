"""``slipway runners status``: why each job waits, from what ``kubectl`` and GitHub say; a script says it in kubectl's place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from scaler.waiting import CAUSES, STEPS, Standing
from stacks.config import github_url
from stacks.config.stack_file import ROOT
from tests.fakes.github.runner_api import TOKEN, World, served

SPACE = "slipway-runners"
STACK = """config:
  slipway:flavor: runners
  slipway:runners:
    kind: kubernetes
    profile: eks-p5
    namespace: {space}
    maxRunners: 2
    labels: [h100]
    github: {{url: https://github.com/acme/images, secret: github}}{more}
"""
BACK_OFF = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image r.example/x:1"}}}
NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
NO_DRIVER = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
QUOTA = 'pods "r1" is forbidden: exceeded quota: runners, requested: requests.nvidia.com/gpu=8'


def ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def item(name: str, minutes: float = 5, labels: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": ago(minutes), "labels": labels or {}}, **body}


def pod(name: str, phase: str = "Running", labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    return item(name, labels=labels, status={"phase": phase, **status})


def unscheduled(name: str, message: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}]
    return pod(name, "Pending", labels, conditions=conditions)


def up(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return pod(name, labels=labels, containerStatuses=[{"state": {"running": {"startedAt": ago(2)}}}])


class Site:
    """A stack, and what its cluster and GitHub answer."""

    def __init__(self, root: Path, github: World) -> None:
        self.root, self.github = root, github
        self.program = root / "bin" / "kubectl"
        self.program.parent.mkdir()
        self.stack()
        self.cluster()

    def stack(self, more: str = "") -> None:
        (self.root / "stacks").mkdir(exist_ok=True)
        (self.root / "stacks/Pulumi.mine.yaml").write_text(STACK.format(space=SPACE, more=more))

    def cluster(self, *, assigned: int = 0, least: int = 0, refused: str = "", **items: list[Any]) -> None:
        """Have kubectl list ``runners``, their ``pods``, the ``jobs``, ``events`` and those ``own`` to the controller.

        ``least`` is the scale set's minimum, which the number of the ``assigned`` includes.
        """
        items.setdefault("own", [pod("controller-1"), pod("x-listener")])
        sets = [item("set", spec={"replicas": assigned})]
        for name in ("runners", "pods", "jobs", "events", "own"):
            (self.root / f"{name}.json").write_text(json.dumps({"items": items.get(name, [])}))
        (self.root / "sets.json").write_text(json.dumps({"items": sets}))
        minima = [item(SPACE, spec={"minRunners": least} if least else {}), item("other", spec={"minRunners": 9})]
        (self.root / "minima.json").write_text(json.dumps({"items": minima}))
        self.program.write_text(
            f"""#!/bin/sh
[ -z "{refused}" ] || {{ echo "{refused}" >&2; exit 1; }}
case "$*" in
  *"get ephemeralrunners.actions.github.com --namespace={SPACE} "*) cat {self.root}/runners.json;;
  *"get ephemeralrunnersets.actions.github.com --namespace={SPACE} "*) cat {self.root}/sets.json;;
  *"get autoscalingrunnersets.actions.github.com --namespace={SPACE} "*) cat {self.root}/minima.json;;
  *"get pods --namespace={SPACE}-controller "*) cat {self.root}/own.json;;
  *"get pods --namespace={SPACE}-jobs "*) cat {self.root}/jobs.json;;
  *"get events --namespace={SPACE}-jobs "*) echo '{{"items": []}}';;
  *"get pods --namespace={SPACE} "*) cat {self.root}/pods.json;;
  *"get events --namespace={SPACE} "*) cat {self.root}/events.json;;
  *) echo "no answer to $*" >&2; exit 1;;
esac
"""
        )
        self.program.chmod(0o755)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with served() as (github, address):
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
        monkeypatch.setattr("cli.commands.fleet.ROOT", tmp_path)
        monkeypatch.setattr(github_url, "api", lambda _: address)
        yield Site(tmp_path, github)


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["runners", "status", "mine", "--json", *words]) == 0, capsys.readouterr().err
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shown


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["runners", "status", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


WAITING: dict[str, dict[str, Any]] = {
    "capacity": {"pods": [unscheduled("r1", NO_GPU)]},
    "image": {"pods": [pod("r1", "Pending", containerStatuses=[BACK_OFF])]},
    "driver": {
        "events": [item("e", type="Warning", reason="Failed", message=NO_DRIVER, involvedObject={"name": "r1"})]
    },
    "quota": {"runners": [item("r1", status={"phase": "Pending", "message": QUOTA})]},
    "starting": {"pods": [unscheduled("r1", "")]},
    "late": {"runners": [item("r1", 45, status={})]},
    "github": {"runners": [item("r1", status={"phase": "Running"})], "pods": [up("r1")]},
    "controller": {"runners": [], "own": [pod("controller-1")]},
}


@pytest.mark.parametrize("kind", WAITING)
def test_status_of_a_waiting_job_has_its_cause(kind: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.cluster(assigned=1, **{"runners": [item("r1", status={})], **WAITING[kind]})
    (job,) = report(capsys)["jobs"]
    assert (job["kind"], job["place"]) == (kind, "" if kind == "controller" else "r1"), job
    assert job["cause"]
    steps = {"github": "registered", "controller": "queued"}
    assert job["step"] == steps.get(kind, "requested")


def test_idle_runners_of_a_schedule_are_no_waiting_jobs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    idle = {name: item(name, status={"phase": "Running"}) for name in ("r1", "r2")}
    site.cluster(assigned=2, least=2, runners=[*idle.values()], pods=[*map(up, idle)])
    assert report(capsys)["jobs"] == []
    site.cluster(assigned=3, least=2, runners=[*idle.values(), item("r3", status={})], pods=[*map(up, idle)])
    assert len(report(capsys)["jobs"]) == 1


def test_status_of_a_job_that_runs_has_all_steps(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    about = {"jobId": "77", "jobRepositoryName": "images", "jobDisplayName": "build", "phase": "Running"}
    site.cluster(assigned=1, runners=[item("r1", status=about)], pods=[up("r1")])
    (job,) = report(capsys)["jobs"]
    assert (job["job"], job["about"], job["step"], job["kind"]) == ("77", "images build", "started", "")
    assert [*job["times"]] == [*STEPS]


def test_status_of_a_job_without_its_pod_says_why(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """With pods for jobs, GitHub counts a job as in progress that waits for a GPU."""
    site.stack("\n    jobPods: true")
    runner = item("r1", status={"jobId": "77", "phase": "Running"})
    site.cluster(runners=[runner], pods=[up("r1")], jobs=[unscheduled("r1-workflow", NO_GPU, {"runner-pod": "r1"})])
    (job,) = report(capsys)["jobs"]
    assert (job["job"], job["step"], job["kind"], job["cause"]) == ("77", "registered", "capacity", NO_GPU)
    site.cluster(runners=[runner], pods=[up("r1")], jobs=[up("r1-workflow", {"runner-pod": "r1"})])
    assert report(capsys)["jobs"][0]["step"] == "started"


def test_status_tells_no_idle_runner_from_its_probe(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A runner without a job is not ready, which the kubelet reports for an hour. That is no cause of anything."""
    site.stack("\n    jobPods: true")
    about: dict[str, Any] = {"involvedObject": {"name": "r1"}, "lastTimestamp": ago(1)}
    events = [item("e", type="Warning", reason="Unhealthy", message="Readiness probe failed: ", **about)]
    coming = unscheduled("r1-workflow", "", {"runner-pod": "r1"})
    busy = item("r1", status={"jobId": "77", "phase": "Running"})
    site.cluster(runners=[busy], pods=[up("r1")], jobs=[coming], events=events)
    (job,) = report(capsys)["jobs"]
    assert (job["kind"], job["cause"].endswith("the pod of its job comes up")) == ("starting", True), job
    events = [item("e", type="Warning", reason="Unhealthy", message="Startup probe failed: no daemon", **about)]
    site.cluster(runners=[busy], pods=[up("r1")], jobs=[coming], events=events)
    assert report(capsys)["jobs"][0]["cause"] == "Unhealthy: Startup probe failed: no daemon"
    # Its pod runs, and ARC has not seen that yet.
    idle = pod(
        "r1", conditions=[{"type": "Ready", "status": "False", "message": "containers with unready status: [runner]"}]
    )
    site.cluster(assigned=1, runners=[item("r1", status={"phase": "Pending"})], pods=[idle])
    assert report(capsys)["jobs"][0]["kind"] == "starting"


def test_status_with_githubs_queue_names_every_job(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    queued = {"status": "queued", "name": "test", "created_at": ago(9)}
    site.github.queue = [  # the first hundred are of the first page
        *({**queued, "id": 100 + number, "labels": ["h100"], "status": "completed"} for number in range(100)),
        {**queued, "id": 1, "labels": [SPACE, "h100"]},
        {**queued, "id": 2, "labels": ["h100"], "created_at": ago(3)},
        {**queued, "id": 3, "labels": ["h200"]},
        {**queued, "id": 4, "labels": ["h100"], "status": "completed"},
    ]
    busy = item("r1", status={"jobId": "9", "phase": "Running"})
    site.cluster(assigned=2, runners=[busy, item("r2", status={})], pods=[up("r1"), unscheduled("r2", NO_GPU)])
    shown = report(capsys)
    assert shown["troubles"] == []
    assert {job["job"]: job["kind"] for job in shown["jobs"]} == {
        "1": "capacity",
        "2": "limit",
        "3": "label",
        "9": "",
    }
    assert "no runner of this stack has the labels h200; they have slipway-runners, h100" in json.dumps(shown)


def test_status_names_jobs_beyond_what_a_set_is_assigned(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub assigns a set no more jobs than it can have machines, and has its own numbers for those."""
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    runners = {
        "kind": "ec2",
        "region": "us-east-1",
        "account": "123456789012",
        "instanceTypes": ["g5.2xlarge"],
        "subnets": ["subnet-0123456789abcdef0"],
        "labels": ["h100"],
        "maxRunners": 2,
        "github": {
            "url": "https://github.com/acme/images",
            "secret": "arn:aws:secretsmanager:us-east-1:123456789012:secret:github-AbCdEf",
        },
    }
    config = {"slipway:flavor": "runners", "slipway:runners": runners}
    (site.root / "stacks/Pulumi.mine.yaml").write_text(json.dumps({"config": config}))
    job = {"status": "queued", "name": "test", "labels": ["h100"]}
    site.github.queue = [{**job, "id": number, "created_at": ago(10 - number)} for number in range(1, 6)]
    busy = Standing("", "i-1", "started", "", "", {}, "")
    wait = Standing("", "i-2", "booted", "starting", "it starts", {}, "acme/images")
    noted = Standing("4", "", "assigned", "starting", "it starts", {}, "acme/images")
    other = Standing("", "", "assigned", "starting", "it starts", {}, "acme/other")
    for known, kinds in (
        ([busy, wait, noted, other], {"2": "limit", "3": "limit", "4": "starting", "5": "limit"}),
        ([busy], dict.fromkeys("12345", "github")),
    ):
        monkeypatch.setattr(
            "cli.runners.runner_status.keeper_report", lambda *_, known=known: (datetime.now(UTC).timestamp(), known)
        )
        shown = report(capsys)["jobs"]
        assert {each["job"]: each["kind"] for each in shown if each["job"]} == kinds
        assert len(shown) == len(kinds) + sum(not each.job for each in known)
        assert all(each["cause"] for each in shown if each["kind"])


def test_status_without_github_says_so_and_goes_on(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.cluster(assigned=1, runners=[item("r1", status={})], pods=[unscheduled("r1", NO_GPU)])
    (line,) = report(capsys)["troubles"]
    assert line == "GitHub's queue was not read, which has jobs with wrong labels and beyond maxRunners: give GH_TOKEN"
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    site.github.down = True
    shown = report(capsys)
    assert [job["kind"] for job in shown["jobs"]] == ["capacity"]
    assert shown["troubles"][0].startswith("GitHub answers 503")
    monkeypatch.setenv("GH_TOKEN", "ghp_wrong")
    site.github.down = False
    (line,) = report(capsys)["troubles"]
    assert line.startswith("GitHub answers 401")
    assert "ghp_wrong" not in line


def test_status_names_a_runner_that_github_gives_no_job(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub's own day counts, and without an answer the one of its rule."""
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    site.stack("\n    image: ghcr.io/actions/actions-runner:2.336.0")
    assert [line.partition(" on, ")[0] for line in report(capsys)["troubles"]] == [
        "slipway:runners.image: GitHub may give runners of release 2.336.0 no job from 2026-09-25"
    ]
    site.github.deprecations = {"2.336.0": ago(-60 * 24 * 13)}
    (line,) = report(capsys)["troubles"]
    assert line.startswith("slipway:runners.image: GitHub gives runners of release 2.336.0 no job from 20")
    for day in (ago(-60 * 24 * 16), None):
        site.github.deprecations = {"2.336.0": day}
        assert report(capsys)["troubles"] == []
    site.github.deprecations = {"2.336.0": "soon"}
    assert "may give" in report(capsys)["troubles"][0]


def test_status_of_what_cannot_be_read_is_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(capsys, "none").startswith("there is no stack 'none'")
    assert "set GH_TOKEN" in refusal(capsys, "mine", "--repository", "acme/images")
    assert "expected OWNER/NAME" in refusal(capsys, "mine", "--repository", "../x")
    site.cluster(refused="You must be logged in to the server (Unauthorized)")
    assert refusal(capsys, "mine").endswith(
        "the cluster does not answer kubectl: You must be logged in to the server (Unauthorized)"
    )
    site.cluster(refused="error: the server doesn't have a resource type 'ephemeralrunners'")
    assert "`slipway up` brings ARC" in refusal(capsys, "mine")
    site.cluster(runners=[{"metadata": {"name": "r1"}}])
    assert "another shape than documented" in refusal(capsys, "mine")
    monkeypatch.setenv("PATH", str(site.root))
    assert "kubectl is not on PATH" in refusal(capsys, "mine")
    (site.root / "stacks/Pulumi.mine.yaml").write_text("config: {slipway:flavor: local}\n")
    assert "has no runners" in refusal(capsys, "mine")


def test_status_as_text_shows_steps_and_causes(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.cluster(assigned=1, runners=[item("r1", status={})], pods=[unscheduled("r1", NO_GPU)])
    assert main(["runners", "status", "mine"]) == 0
    head, columns, row, cause, _ = capsys.readouterr().out.splitlines()
    assert head == "stack mine: 0 jobs run, 1 wait"
    assert columns.split() == ["JOB", *map(str.upper, STEPS), "RUNNER"]
    assert row.split()[-1] == "r1"
    assert cause == f"  capacity: {NO_GPU}"


SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([0-9.e+]+)')
"""A sample of OpenMetrics 1.0.0 with labels, of those that this command prints."""


def test_metrics_are_openmetrics_and_count_the_jobs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.cluster(assigned=1, runners=[item("r1", status={})], pods=[unscheduled("r1", NO_GPU)])
    assert main(["runners", "status", "mine", "--metrics"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "# EOF"
    samples = [match.groups() for line in lines if (match := SAMPLE.fullmatch(line))]
    assert len(samples) + sum(line.startswith(("# TYPE ", "# UNIT ", "# HELP ")) for line in lines) == len(lines)
    waiting = {labels: value for name, labels, value in samples if name == "slipway_runners_waiting_jobs"}
    assert len(waiting) == len(CAUSES)
    assert [labels for labels, value in waiting.items() if value == "1"] == [
        'stack="mine",kind="kubernetes",cause="capacity"'
    ]
    (longest,) = (
        float(value)
        for name, labels, value in samples
        if name.endswith("longest_wait_seconds") and "capacity" in labels
    )
    assert 290 < longest < 400
    (age,) = (float(value) for name, _, value in samples if name.endswith("report_age_seconds"))
    assert 0 <= age < 3600  # it is of this run


@pytest.mark.usefixtures("site")
def test_dashboard_asks_for_the_metrics_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runners", "status", "mine", "--metrics"]) == 0
    names = {line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("# TYPE")}
    assert main(["runners", "dashboard"]) == 0
    board = json.loads(capsys.readouterr().out)
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert {re.search(r"slipway_\w+", expr)[0] for expr in asked} == names  # type: ignore[index]
    assert board["panels"][1] == {
        "id": 1,
        "title": "Jobs that wait, by the cause",
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": 12, "y": 0, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": "short", "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "expr": 'sum by (cause) (slipway_runners_waiting_jobs{stack=~"$stack"})',
                "legendFormat": "{{cause}}{{step}}{{reservation}}",
            }
        ],
    }
    assert [variable["name"] for variable in board["templating"]["list"]] == ["source", "stack"]


@pytest.mark.usefixtures("site")
def test_page_lists_every_step_cause_and_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runners", "status", "mine", "--metrics"]) == 0
    names = [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("# TYPE")]
    page = (ROOT / "docs/runners/waiting.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [*STEPS, *CAUSES, *names]
