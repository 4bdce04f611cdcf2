"""A stand-in of GitHub Actions: jobs in their order, matrices, called workflows, conditions, outputs and artifacts.

Every ``run`` line is run by bash as GitHub runs it, with the variables that GitHub sets and no others but those that find
this machine's toolchain. Each job has a folder of its own, as a machine has; one with a container has a pod
(:mod:`tests.fakes.github.job_pod`). Of the actions, ``checkout`` fetches from a
bare remote as the real one does, the two of artifacts copy, and a scanner only notes what it is given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.github.expressions import evaluate, interpolate, value
from tests.fakes.github.job_pod import JobPod
from toolchain.checkout import Checkout
from toolchain.parts import python_env
from toolchain.parts.part import Part, remember

WORKFLOWS = ".github/workflows"
TOOLS = ("PATH", "SLIPWAY_REGISTRY", "SLIPWAY_MIRRORS", "DOCKER_HOST", "DOCKER_CONFIG", "SLIPWAY_DOCKER_PROVIDER")
"""How a machine's programs are found, and what it runs; all else is as on a machine of GitHub's."""

SUDO = 'sudo() { while [[ $1 == -* ]]; do shift; done; "$@"; }'
"""In place of the program, which a machine of GitHub's has: the tests run as root, or need none."""


def workflow(root: Path, name: str) -> dict[str, Any]:
    """Read a workflow; YAML takes its key ``on`` for a truth."""
    read: dict[Any, Any] = yaml.safe_load((root / WORKFLOWS / name).read_text())
    read["on"] = read.pop(True)
    return read


@dataclass
class Event:
    """What starts a workflow: the event's name, its ref and commit, and its payload."""

    name: str
    ref: str
    sha: str
    payload: dict[str, Any] = field(default_factory=dict)
    base_ref: str = ""
    head_ref: str = ""


@dataclass
class Job:
    """A job that has ended."""

    name: str
    result: str
    runs_on: Any = None
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    permissions: dict[str, str] = field(default_factory=dict)
    scanned: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Run:
    """A run of a workflow that has ended: its jobs, one for each cell of a matrix, and its artifacts."""

    jobs: list[Job]
    artifacts: Path

    def job(self, name: str) -> Job:
        (match,) = [job for job in self.jobs if job.name == name]
        return match

    @property
    def results(self) -> dict[str, str]:
        return {job.name: job.result for job in self.jobs}

    @property
    def log(self) -> str:
        return "\n".join(f"--- {job.name}: {job.result}\n{job.log}" for job in self.jobs)


class Actions:
    """A repository on GitHub: its bare remote, the variables and secrets that it defines, and where its API is.

    ``workflows`` is the repository and ref whose workflows a caller uses: somebody else's, where it is given.
    """

    def __init__(
        self, folder: Path, remote: Path, variables: Mapping[str, str], api: str = "", name: str = "acme/slipway",
        workflows: str = "",
    ) -> None:  # fmt: skip
        self.folder = folder
        self.name = name
        self.workflows = workflows
        self.remote = remote
        self.variables = dict(variables)
        self.secrets: dict[str, str] = {}
        self.api = api
        self.vulnerable = False
        """Whether scans fail."""

    def run(
        self, name: str, event: Event, *, depth: int | None = None, inputs: Mapping[str, Any] | None = None,
        artifacts: Path | None = None,
    ) -> Run:  # fmt: skip
        """Run a workflow of the main branch, or of the pull request that the event is of, to its end."""
        home = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        store = artifacts or home / "artifacts"
        store.mkdir(exist_ok=True)
        source = self._source(event, home)
        jobs, _ = _Workflow(self, event, home, store, depth, source).run(name, dict(inputs or {}), self.secrets)
        return Run(jobs, store)

    def _source(self, event: Event, home: Path) -> Path:
        files = home / "workflows"
        subprocess.run(["git", "clone", "-q", self.remote, files], check=True)
        git = ["git", "-C", str(files)]
        subprocess.run([*git, "fetch", "-q", "origin", event.sha], check=True)
        subprocess.run([*git, "checkout", "-q", event.sha], check=True)
        return files


class _Workflow:
    def __init__(
        self, actions: Actions, event: Event, home: Path, store: Path, depth: int | None, source: Path
    ) -> None:
        self.actions = actions
        self.event = event
        self.home = home
        self.store = store
        self.depth = depth
        self.source = source
        self._count = 0

    def run(self, name: str, inputs: dict[str, Any], secrets: Mapping[str, str]) -> tuple[list[Job], dict[str, Any]]:
        """Return the jobs that have ended, and the outputs of the workflow for who called it."""
        read = workflow(self.source, name)
        started = ("workflow_call", "workflow_dispatch") if isinstance(read["on"], dict) else ()
        declared = {key: each for how in started for key, each in (read["on"].get(how) or {}).get("inputs", {}).items()}
        assert set(inputs) <= set(declared), inputs
        values = {key: about.get("default", "") for key, about in declared.items()} | inputs
        contexts: dict[str, Any] = {
            "github": self._github(),
            "vars": self.actions.variables,
            "secrets": secrets,
            "inputs": values,
            "needs": {},
            "workflow_env": read.get("env", {}),
            "runner": {"temp": str(self.home / "temp")},
        }
        (self.home / "temp").mkdir(exist_ok=True)
        ended: list[Job] = []
        for key, job in read["jobs"].items():
            needs = job.get("needs", [])
            names = [needs] if isinstance(needs, str) else needs
            job_contexts = {**contexts, "needs": {need: contexts["needs"][need] for need in names}}
            done, outputs = self._job(key, job, job_contexts, name)
            ended += done
            results = {ended_job.result for ended_job in done}
            worst = next((result for result in ("failure", "cancelled") if result in results), "success")
            result = "skipped" if results == {"skipped"} else worst
            contexts["needs"][key] = {"result": result, "outputs": outputs}
        called = (read["on"].get("workflow_call") or {}).get("outputs", {}) if isinstance(read["on"], dict) else {}
        jobs = {"jobs": contexts["needs"]}
        return ended, {key: value(about["value"], jobs) for key, about in called.items()}

    def _github(self) -> dict[str, Any]:
        return {
            "ref": self.event.ref,
            "sha": self.event.sha,
            "base_ref": self.event.base_ref,
            "head_ref": self.event.head_ref,
            "event_name": self.event.name,
            "event": {"repository": {"default_branch": "main"}, **self.event.payload},
            "token": "the-jobs-own-token",
            "actor": "someone",
            "repository": self.actions.name,
            "server_url": "https://github.com",
        }

    def _workflow_ref(self, name: str) -> str:
        repository, _, ref = (self.actions.workflows or f"{self.actions.name}@{self.event.ref}").partition("@")
        return f"{repository}/{WORKFLOWS}/{name}@{ref}"

    def _job_context(self, name: str) -> dict[str, str]:
        ref = self._workflow_ref(name)
        return {
            "workflow_ref": ref,
            "workflow_repository": ref.partition("/.github/")[0],
            "workflow_sha": self.event.sha,
        }

    def _job(
        self, key: str, job: dict[str, Any], contexts: dict[str, Any], called: str
    ) -> tuple[list[Job], dict[str, Any]]:
        needed = {need["result"] for need in contexts["needs"].values()}
        condition = str(job.get("if", "true")).removeprefix("${{").removesuffix("}}")
        regardless = "always()" in condition or "cancelled()" in condition
        if (not regardless and needed - {"success"}) or not evaluate(condition, contexts):
            return [Job(key, "skipped")], {}
        matrix = value(job.get("strategy", {}).get("matrix", {"include": [{}]}), contexts)
        matrix = value(matrix["include"], contexts)
        ended: list[Job] = []
        outputs: dict[str, Any] = {}
        for cell in matrix:
            done, outputs = self._cell(job, {**contexts, "matrix": cell}, called)
            ended += done
        return ended, outputs

    def _cell(self, job: dict[str, Any], contexts: dict[str, Any], called: str) -> tuple[list[Job], dict[str, Any]]:
        name = interpolate(job["name"], contexts)
        if "uses" in job:
            values = {name: value(text, contexts) for name, text in job.get("with", {}).items()}
            secrets = {name: value(text, contexts) for name, text in job.get("secrets", {}).items()}
            done, outputs = self.run(Path(job["uses"]).name, values, secrets)
            return [replace(inner, name=f"{name} / {inner.name}") for inner in done], outputs
        self._count += 1
        place = self.home / f"machine-{self._count}"
        place.mkdir()
        ended = Job(name, "success", value(job["runs-on"], contexts), permissions=job.get("permissions", {}))
        steps: dict[str, Any] = {}
        contexts = {**contexts, "steps": steps, "env": {}, "job": self._job_context(called)}
        own = {**contexts["workflow_env"], **job.get("env", {})}
        variables = {key: interpolate(str(text), contexts) for key, text in own.items()}
        temp = self.home / "temp"
        pod = None
        if container := job.get("container"):
            warming = "SLIPWAY_WARM" in container.get("env", {})
            pod = JobPod(interpolate(container["image"], contexts), temp, warming=warming)
        for step in job["steps"]:
            condition = str(step.get("if", "true"))
            failed = ended.result == "failure"
            if (failed and condition != "always()") or not evaluate(condition, contexts):
                continue
            more = {key: interpolate(str(text), contexts) for key, text in step.get("env", {}).items()}
            values = {key: value(text, contexts) for key, text in step.get("with", {}).items()}
            if "uses" in step:
                if pod and values.get("path"):
                    pod.fetch(values["path"], place / "left")
                    values["path"] = str(place / "left")
                self._use(step["uses"].partition("@")[0], values, place, ended)
                continue
            outputs, ok = self._line(step["run"], place, {**variables, **more}, ended, pod)
            steps[step.get("id", "")] = {"outputs": outputs}
            ended.result = ended.result if ok or step.get("continue-on-error") else "failure"
        if pod:
            pod.end()
        for output, text in job.get("outputs", {}).items():
            ended.outputs[output] = interpolate(text, contexts)
        return [ended], ended.outputs

    def _line(
        self, line: str, place: Path, more: Mapping[str, str], job: Job, pod: JobPod | None
    ) -> tuple[dict[str, str], bool]:
        if pod:
            ended = pod.line(line, more)
            job.log += f"$ {line}\n{ended.stdout}"
            return {}, ended.returncode == 0
        files = {name: place / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        (place / "event.json").write_text(json.dumps(self._github()["event"]))
        ref_name = self.event.ref.removeprefix("refs/").partition("/")[2]
        environment = {
            **{name: os.environ[name] for name in TOOLS if name in os.environ},
            "HOME": str(place),
            "CI": "true",
            "RUNNER_TEMP": str(self.home / "temp"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "someone",
            "GITHUB_API_URL": self.actions.api,
            "GITHUB_BASE_REF": self.event.base_ref,
            "GITHUB_EVENT_NAME": self.event.name,
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_HEAD_REF": self.event.head_ref,
            "GITHUB_REF": self.event.ref,
            "GITHUB_REF_NAME": ref_name,
            "GITHUB_REF_TYPE": "branch",
            "GITHUB_REPOSITORY": self.actions.name,
            "GITHUB_REPOSITORY_OWNER": self.actions.name.partition("/")[0],
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": self.event.sha,
            **{name: str(file) for name, file in files.items()},
            **more,
        }
        done = subprocess.run(
            ["bash", "-e", "-c", f"{SUDO}\n{line}"],
            cwd=place / "checkout" if (place / "checkout").is_dir() else place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        job.log += f"$ {line}\n{done.stdout}"
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        outputs = dict(row.split("=", 1) for row in files["GITHUB_OUTPUT"].read_text().splitlines())
        return outputs, done.returncode == 0

    def _use(self, action: str, inputs: Mapping[str, Any], place: Path, job: Job) -> None:
        match action:
            case "actions/checkout":
                assert inputs["persist-credentials"] is False
                folder = place / "checkout" / inputs.get("path", "")
                checkout(self.actions.remote, self.event, folder, self.depth or inputs.get("fetch-depth", 1))
            case "actions/upload-artifact":
                source = place / "checkout" / inputs["path"]
                if source.is_dir():
                    shutil.copytree(source, self.store / inputs["name"])
                elif source.is_file():
                    (self.store / inputs["name"]).mkdir()
                    shutil.copy(source, self.store / inputs["name"])
                else:
                    assert inputs["if-no-files-found"] == "ignore"
            case "actions/download-artifact":
                artifacts = sorted(self.store.glob(inputs["pattern"]))
                flat = inputs.get("merge-multiple") or len(artifacts) == 1
                for artifact in artifacts:
                    folder = place / "checkout" / inputs["path"] / ("" if flat else artifact.name)
                    shutil.copytree(artifact, folder, dirs_exist_ok=True, symlinks=True)
            case "anchore/scan-action":
                job.scanned.append(dict(inputs))
                job.result = "failure" if self.actions.vulnerable else job.result
            case _:
                raise AssertionError(f"no stand-in of {action}")


def checkout(remote: Path, event: Event, folder: Path, depth: int) -> None:
    """Fetch and check out as actions/checkout does: all branches where the depth is 0, one commit where it is 1.

    What has been installed on the machine before is the tests' own environment of Python packages.
    """
    folder.mkdir()
    git = ["git", "-C", str(folder)]
    branch = event.ref.removeprefix("refs/heads/") if event.ref.startswith("refs/heads/") else None
    at = f"refs/remotes/origin/{branch}" if branch else f"refs/remotes/{event.ref.removeprefix('refs/')}"
    every = [["fetch", "-q", "--no-tags", "origin", "+refs/heads/*:refs/remotes/origin/*"]] if depth == 0 else []
    shallow = [f"--depth={depth}"] if depth else []
    for words in (
        ["init", "-q", "-b", "unborn"],
        ["remote", "add", "origin", remote.as_uri()],
        *every,
        ["fetch", "-q", "--no-tags", *shallow, "origin", f"+{event.sha}:{at}"],
        ["checkout", "-q", "-B", branch, at] if branch else ["checkout", "-q", "--detach", at],
    ):
        subprocess.run([*git, *words], check=True)
    clone = Checkout(folder)
    clone.venv.mkdir(parents=True)
    for part in ("bin", "lib", "pyvenv.cfg"):
        (clone.venv / part).symlink_to(Path(sys.prefix, part))
    remember(clone, Part(python_env.NAME, str(clone.venv), "the tests' own", path=[str(clone.venv / "bin")]),
             python_env.key(clone))  # fmt: skip
