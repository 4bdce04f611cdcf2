"""What holds for every workflow as it is written: pins, permissions, secrets, runners, and the graph's matrices."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import arguments
from ci.verbs import affected, propose
from stacks import plan
from stacks.config.stack_file import ROOT, stack_names
from tests.fakes.github.actions import WORKFLOWS, workflow
from tests.fakes.github.expressions import evaluate, interpolate

NAMES = sorted(path.name for path in (ROOT / WORKFLOWS).glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
HOSTED = {"ubuntu-24.04", "ubuntu-24.04-arm"}


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in NAMES:
        for key, job in workflow(ROOT, name)["jobs"].items():
            yield name, key, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, _, job in jobs():
        for step in job.get("steps", []):
            yield name, step


@pytest.mark.parametrize("name", NAMES)
def test_action_is_pinned_to_a_commit_with_its_release(name: str) -> None:
    used = [
        line.strip().removeprefix("- ")
        for line in (ROOT / WORKFLOWS / name).read_text().splitlines()
        if "uses: " in line
    ]
    assert used
    for line in used:
        assert PINNED.fullmatch(line) or line.startswith("uses: ./.github/workflows/"), line


def test_action_has_one_commit_everywhere() -> None:
    text = "".join((ROOT / WORKFLOWS / name).read_text() for name in NAMES)
    pins = set(re.findall(r"uses: (\S+)@([0-9a-f]{40})", text))
    assert len(pins) == len({action for action, _ in pins})


def test_run_step_is_one_command_without_expressions() -> None:
    for name, step in steps():
        line = step.get("run")
        if line is not None:
            assert "\n" not in line.strip(), name
            assert "${{" not in line, name
            assert not re.search(r"&&|\|\||[;|`]|\$\(", line), f"{name}: {line}: logic belongs into ci/"


def test_run_step_is_a_known_command_of_ci() -> None:
    lines = [step["run"] for _, step in steps() if "run" in step]
    commands = [re.sub(r'"[^"]*"', "x", line) for line in lines if " -m ci " in line]
    assert commands
    for line in commands:
        words = line.partition(" -m ci ")[2].split()
        assert arguments._parser().parse_args(words).verb == words[0]


def test_token_permissions_are_granted_by_job() -> None:
    for name in NAMES:
        assert workflow(ROOT, name)["permissions"] == {}, name
    for name, key, job in jobs():
        assert "permissions" in job, f"{name}: {key}"
    writing = {(name, scope) for name, _, job in jobs() for scope, may in job["permissions"].items() if may == "write"}
    assert writing == {
        ("attest.yml", "id-token"), ("attest.yml", "packages"), ("build.yml", "id-token"), ("build.yml", "packages"), ("publish.yml", "id-token"), ("publish.yml", "packages"),
        ("up.yml", "id-token"), ("up.yml", "packages"), ("publish.yml", "contents"), ("comment.yml", "pull-requests"),
        ("nightly.yml", "actions"), ("nightly.yml", "contents"), ("nightly.yml", "pull-requests"),
        ("nightly.yml", "id-token"), ("warm.yml", "id-token"), ("warm.yml", "packages"),
        ("release.yml", "attestations"), ("release.yml", "contents"), ("release.yml", "id-token"),
    }  # fmt: skip


def test_workflow_of_fork_has_no_secrets_and_only_reads() -> None:
    started = [name for name in NAMES if "pull_request" in workflow(ROOT, name)["on"]]
    assert started == ["preview.yml", "test.yml"]
    for name in started:
        text = (ROOT / WORKFLOWS / name).read_text()
        assert not re.search(r"\b(secrets|vars|github\.token|environment:|inherit)\b", text), name
        for job in workflow(ROOT, name)["jobs"].values():
            assert set(job["permissions"].values()) == {"read"}


def test_workflow_of_fork_runs_on_hosted_runners_alone() -> None:
    for name in ("preview.yml", "test.yml"):
        for job in workflow(ROOT, name)["jobs"].values():
            for platform in ("linux/amd64", "linux/arm64", "self-hosted"):
                assert (
                    interpolate(job["runs-on"], {"matrix": {"platform": platform, "runner": "self-hosted"}}) in HOSTED
                )


def test_no_event_gives_code_of_fork_more_permissions() -> None:
    for name in NAMES:
        read = workflow(ROOT, name)
        assert "pull_request_target" not in read["on"]
        if "workflow_run" in read["on"]:
            for job in read["jobs"].values():
                for step in job["steps"]:
                    assert "ref" not in step.get("with", {}), "the run's own commit is not checked out"
                assert job["steps"][1]["with"]["path"] == "${{ runner.temp }}/reports", "beside the code, not in it"


def test_secrets_are_in_publishing_workflows_alone() -> None:
    for name in NAMES:
        secrets = set(re.findall(r"secrets\.(\w+)", (ROOT / WORKFLOWS / name).read_text()))
        if name == "warm.yml":
            assert secrets == {"COSIGN_PASSWORD", "COSIGN_PRIVATE_KEY", "SLIPWAY_REGISTRY_PASSWORD"}, "not the state's"
        elif name in {"attest.yml", "build.yml", "publish.yml", "up.yml"}:
            assert secrets == {
                "COSIGN_PASSWORD",
                "COSIGN_PRIVATE_KEY",
                "PULUMI_CONFIG_PASSPHRASE",
                "SLIPWAY_REGISTRY_PASSWORD",
            }
        else:
            assert not secrets
    up = workflow(ROOT, "up.yml")["jobs"]["up"]
    assert up["environment"] == "publish"
    assert up["permissions"]["id-token"] == "write"
    assert up["timeout-minutes"] == 960
    # The jobs of the platforms too: they share the stack's state.
    assert {group("one", run) for run in ("1", "2")} == {"up-one"}
    assert group("two", "1") == "up-two"
    native = workflow(ROOT, "up.yml")["jobs"]["native"]
    assert native["strategy"]["max-parallel"] == 1
    assert {key: native[key] for key in ("environment", "permissions")} == {
        key: up[key] for key in ("environment", "permissions")
    }


@pytest.mark.parametrize(("result", "runs"), [("success", True), ("skipped", True), ("failure", False)])
def test_index_job_waits_for_all_platforms(result: str, runs: bool) -> None:
    up = workflow(ROOT, "up.yml")["jobs"]["up"]
    needs = {"caller": {"result": "success"}, "native": {"result": result}}
    condition = up["if"].removeprefix("${{").removesuffix("}}")
    assert up["needs"] == [*needs]
    assert bool(evaluate(condition, {"needs": needs})) == runs


def test_readme_example_of_call_has_required_inputs() -> None:
    text = (ROOT / WORKFLOWS / "README.md").read_text().partition("## build\n\n```yaml\n")[2].partition("```")[0]
    (job,) = yaml.safe_load(text)["jobs"].values()
    call = workflow(ROOT, Path(job["uses"]).name)["on"]["workflow_call"]
    assert set(job["with"]) <= set(call["inputs"])
    assert job["secrets"] == {name: f"${{{{ secrets.{name} }}}}" for name in call["secrets"]}
    assert job["permissions"] == workflow(ROOT, Path(job["uses"]).name)["jobs"]["up"]["permissions"]


ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml/torch@sha256:0"
ROLES = {
    "AWS_SCAN_ROLE_ARN": "arn:aws:iam::123456789012:role/scan",
    "AZURE_SCAN_CLIENT_ID": "0-1",
    "GOOGLE_SCAN_SERVICE_ACCOUNT": "scan@acme-ml.iam.gserviceaccount.com",
}
GOOGLE = "docker login --username oauth2accesstoken --password-stdin https://us-docker.pkg.dev of hush"


@pytest.mark.parametrize(
    ("ref", "variables", "logins"),
    [
        (ECR, ROLES, ["aws-actions/configure-aws-credentials", "aws-actions/amazon-ecr-login"]),
        ("acme.azurecr.io/ml/torch@sha256:0", ROLES, ["Azure/login", "az acr login --name acme"]),
        ("us-docker.pkg.dev/acme-ml/x/torch@sha256:0", ROLES, ["google-github-actions/auth", GOOGLE]),
        ("us-docker.pkg.dev/acme-ml/x/torch@sha256:0", {}, []),
        ("evil.example/x.pkg.dev/y/torch@sha256:0", ROLES, []),
        ("pkg.dev.evil.example/x.pkg.dev@sha256:0", ROLES, []),
        ("evil.example/x.dkr.ecr.y/torch@sha256:0", ROLES, []),
        ("evil.example/x.azurecr.io/torch@sha256:0", ROLES, []),
        ("ghcr.io/acme/torch@sha256:0", ROLES, []),
        (ECR, {}, []),
    ],
)
def test_scan_logs_in_with_pull_access_alone(ref: str, variables: Mapping[str, str], logins: list[str]) -> None:
    job = workflow(ROOT, "nightly.yml")["jobs"]["scan"]
    assert "environment" not in job, "its subject would be that of who publishes"
    google = {"google": {"outputs": {"access_token": "hush"}}}
    contexts = {"matrix": {"ref": ref, "host": ref.partition("/")[0]}, "vars": variables, "steps": google}
    used = []
    for step in job["steps"][:-1]:
        if not evaluate(step["if"], contexts):
            continue
        if "run" not in step:
            used.append(step["uses"].partition("@")[0])
            continue
        environment = {name: interpolate(text, contexts) for name, text in step["env"].items()}
        line = f'az() {{ echo "az $*"; }}; docker() {{ echo "docker $* of $(cat)"; }}; {step["run"]}'
        used.append(
            subprocess.run(["bash", "-c", line], env=environment, check=True, stdout=-1, text=True).stdout.strip()
        )
    assert used == logins


def test_nightly_lock_has_the_token_for_private_parents() -> None:
    job = workflow(ROOT, "nightly.yml")["jobs"]["parents"]
    assert job["permissions"]["packages"] == "read"
    locking = [step for step in job["steps"] if " -m stacks lock" in step.get("run", "")]
    assert [step["env"] for step in locking] == [{"GITHUB_TOKEN": "${{ github.token }}"}] * 2


def test_nightly_names_parents_and_packages_in_its_title() -> None:
    step = workflow(ROOT, "nightly.yml")["jobs"]["parents"]["steps"][-1]
    assert step["run"].endswith(' propose parents --title "Parents or packages have moved" stacks/lock.toml')


def test_nightly_proposes_tables_though_a_source_is_down() -> None:
    refresh, propose = workflow(ROOT, "nightly.yml")["jobs"]["tables"]["steps"][-2:]
    assert (refresh["run"], refresh["continue-on-error"]) == (".slipway/venv/bin/python -m maintenance refresh", True)
    assert propose["run"].endswith(" stacks/versions/*.toml")
    assert "if" not in propose


def test_nightly_shards_hold_each_test_file_once() -> None:
    rows = workflow(ROOT, "nightly.yml")["jobs"]["tests"]["strategy"]["matrix"]["include"]
    shards = dict(re.findall(r"^shard-(\S+) := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [row["shard"] for row in rows] == list(shards)
    paths = [path for patterns in shards.values() for pattern in patterns.split() for path in ROOT.glob(pattern)]
    files = [file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    assert sorted(files) == sorted((ROOT / "tests").rglob("test_*.py"))


def dry_run(*words: str) -> subprocess.CompletedProcess[str]:
    """Return what `make` would run, whatever a `make` around the tests was given."""
    command = ["make", "--dry-run", f"--directory={ROOT}", *words]
    return subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)


def test_makefile_shard_is_the_tests_of_its_row() -> None:
    assert " tests/engine tests/aws tests/attacks\n" in dry_run("test-all", "SHARD=engine").stdout
    unknown = dry_run("test-all", "SHARD=engines").stderr
    assert "SHARD=engines is none of: " in unknown
    assert all(name in unknown for name in ("unit", "engine", "universal"))


def test_makefile_tests_variable_reaches_pytest() -> None:
    for target, marks in (("test", ' -m "not slow"'), ("test-all", "")):
        lines = dry_run(target, "TESTS=tests/jobs", "PYTEST_ARGS=--durations=50").stdout.splitlines()
        assert [line for line in lines if line.endswith(f"--dist loadscope --durations=50{marks} tests/jobs")], lines


def test_jobs_of_stacks_run_in_parallel() -> None:
    for _, key, job in jobs():
        most = job.get("strategy", {}).get("max-parallel")
        if key == "publish":  # one, where a stack stands on another
            assert most == "${{ fromJSON(needs.affected.outputs.parallel) }}"
        else:
            assert key == "native" or most is None, "platforms of one stack share its state"
        assert job.get("strategy", {"fail-fast": False})["fail-fast"] is False


def test_job_has_a_timeout() -> None:
    for name, key, job in jobs():
        assert "uses" in job or job["timeout-minutes"] <= 960, f"{name}: {key}"


def test_workflow_references_are_names_of_workflows() -> None:
    called = {workflow(ROOT, name)["name"] for name in NAMES}
    for name in NAMES:
        assert workflow(ROOT, name)["name"] == name.removesuffix(".yml")
        assert set(workflow(ROOT, name)["on"].get("workflow_run", {}).get("workflows", [])) <= called
    assert "workflow_dispatch" in workflow(ROOT, propose._PREVIEW)["on"]
    night = workflow(ROOT, "nightly.yml")
    crons = {entry["cron"] for entry in night["on"]["schedule"]}
    conditions = [step["if"] for step in night["jobs"]["parents"]["steps"] if "if" in step]
    for cron in crons:  # each night has exactly one of the two
        contexts = {"github": {"event": {"schedule": cron}}}
        assert sum(bool(evaluate(condition, contexts)) for condition in conditions) == 1


def test_matrix_has_stacks_images_platforms_and_runners(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr(affected, "git", lambda *_: "false")
    assert arguments.main(["affected", "--since", "0" * 40]) == 0
    lines = dict(line.partition("=")[::2] for line in capsys.readouterr().out.splitlines() if "={" in line)
    rows = json.loads(lines["matrix"])["include"]
    assert [row["stack"] for row in rows] == [name for name in stack_names() if plan.resolve(name)[1]]
    for row in rows:
        config, specs = plan.resolve(row["stack"])
        assert row["images"] == [spec.name for spec in specs]
        assert row["platforms"] == list(config.platforms or [config.platform])
        assert row["runner"] == (list(config.runs_on) or [affected.HOSTED[config.platform]])
        several = len(config.platforms) > 1
        assert [native["platform"] for native in row["natives"]] == (list(config.platforms) if several else [])
    previews = json.loads(lines["previews"])["include"]
    assert [(row["stack"], row["platform"]) for row in previews] == [
        (row["stack"], platform) for row in rows for platform in row["platforms"]
    ]
    assert all(row["runner"] == [affected.HOSTED[row["platform"]]] for row in previews)
    assert len({row["name"] for row in previews}) == len(previews)
    read = {
        name for workflow_ in NAMES for name in re.findall(r"matrix\.(\w+)", (ROOT / WORKFLOWS / workflow_).read_text())
    }
    assert read <= {*rows[0], *previews[0]} | {"host", "image", "ref"} | {
        "shard",
        "engine",
        "provider",
        "store",
    }  # of a scan, of the night's tests


def test_job_that_attests_builds_nothing_and_runs_its_own_commit() -> None:
    called = workflow(ROOT, "attest.yml")["jobs"]
    assert called["build"]["uses"] == "./.github/workflows/up.yml"
    attest = called["attest"]
    assert attest["runs-on"] == "ubuntu-24.04", "a machine of GitHub's, whatever builds"
    own, packages, source, built, signs, _ = attest["steps"]
    for key in ("repository", "sha"):
        assert f"fromJSON(toJSON(job)).workflow_{key}" in own["with"]["repository" if key == "repository" else "ref"]
    assert source["with"] == {"path": "source", "persist-credentials": False}
    assert packages["run"] == "python3 -m toolchain packages"
    assert " -m ci attest " in signs["run"]
    # What the caller cannot give: the digest is an output of the workflow that this one calls.
    assert signs["env"]["DIGEST"] == "${{ needs.build.outputs.statements }}"
    assert set(workflow(ROOT, "attest.yml")["on"]["workflow_call"]["inputs"]) == {
        "stack", "image", "runner", "natives", "warm", "caches", "onto",
    }  # fmt: skip
    for secret in ("COSIGN_PASSWORD", "COSIGN_PRIVATE_KEY", "PULUMI_CONFIG_PASSPHRASE"):
        assert secret not in json.dumps(attest)
    assert built["with"]["path"] == "built"


@pytest.mark.parametrize(
    ("ref", "runs"), [("refs/heads/main", True), ("refs/heads/fix", False), ("refs/pull/1/merge", False)]
)
def test_warm_layer_is_of_main_alone_by_hand(ref: str, runs: bool) -> None:
    read = workflow(ROOT, "warm.yml")
    assert list(read["on"]) == ["workflow_dispatch"], "a pull request starts no such job"
    jobs = read["jobs"]
    for pods in (True, False):
        contexts = {
            "github": {"ref": ref}, "vars": {"PULUMI_BACKEND_URL": "s3://x"}, "inputs": {"pods": pods},
            "needs": {"caches": {"result": "success" if pods else "skipped"}},
        }  # fmt: skip
        conditions = {
            name: job["if"].removeprefix("${{").removesuffix("}}") for name, job in jobs.items() if "if" in job
        }
        assert {name: bool(evaluate(text, contexts)) for name, text in conditions.items()} == {
            "image": runs and pods, "warm": runs,
        }  # fmt: skip
    contexts["inputs"], contexts["needs"] = {"pods": True}, {"caches": {"result": "failure"}}
    assert not evaluate(conditions["warm"], contexts)
    assert jobs["caches"]["needs"] == "image", "no job in the image without it"
    assert jobs["warm"]["uses"] == "./.github/workflows/attest.yml", "it signs as what publishes does"


def test_job_in_the_image_has_nothing_to_steal() -> None:
    """What it runs is the image's and the script's: no secret, no identity, no token that writes, no checkout."""
    job = workflow(ROOT, "warm.yml")["jobs"]["caches"]
    assert job["permissions"] == {"packages": "read"}
    assert "environment" not in job
    assert not re.search(r"secrets\.|github\.token", json.dumps(job))
    script, upload = job["steps"]
    assert script["run"] == 'python3 -c "$PROGRAM"'
    assert upload["uses"].startswith("actions/upload-artifact@")
    # It is read on a machine of GitHub's, beside the code and not in it.
    steps = workflow(ROOT, "up.yml")["jobs"]["up"]["steps"]
    (download,) = [step for step in steps if step.get("if") == "inputs.caches"]
    assert download["with"]["path"].startswith("${{ runner.temp }}/")
    assert download["with"]["pattern"] == upload["with"]["name"]
    runner = workflow(ROOT, "warm.yml")["jobs"]["warm"]["with"]["runner"]
    assert interpolate(runner, {"inputs": {"pods": True, "runner": "x"}}) == '["ubuntu-24.04"]'


def group(stack: str, run: str, *, warm: bool = False) -> str:
    """Return the group of a run of `up`, of which GitHub keeps one waiting run; a later one cancels it."""
    concurrency = workflow(ROOT, "up.yml")["concurrency"]
    assert concurrency["cancel-in-progress"] is False
    return interpolate(concurrency["group"], {"inputs": {"stack": stack, "warm": warm}, "github": {"run_id": run}})


def test_warm_layer_cancels_no_run_that_waits() -> None:
    groups = [group("one", "1"), group("one", "2", warm=True), group("one", "3", warm=True)]
    assert len(set(groups)) == len(groups)


def test_warm_layers_of_one_kind_of_machine_wait() -> None:
    concurrency = workflow(ROOT, "warm.yml")["concurrency"]
    assert concurrency["cancel-in-progress"] is False

    def own(image: str, runner: str) -> str:
        inputs = {"stack": "one", "image": image, "runner": runner}
        return interpolate(concurrency["group"], {"inputs": inputs})

    assert len({own("a", "h100"), own("a", "b200"), own("b", "h100")}) == 3


@pytest.mark.parametrize("warm", [True, False])
def test_up_either_publishes_or_warms(warm: bool) -> None:
    steps = {step["id"]: step for step in workflow(ROOT, "up.yml")["jobs"]["up"]["steps"] if "id" in step}
    contexts = {"inputs": {"warm": warm}}
    ran = [name for name, step in steps.items() if evaluate(step["if"], contexts)]
    assert ran == ["warm" if warm else "publish"]


@pytest.mark.parametrize(
    ("workflow_ref", "attested", "refuses"),
    [
        ("refs/heads/main", True, True),
        ("refs/tags/v1", False, True),
        ("refs/tags/v1", True, False),
        ("b" * 40, True, False),
        ("refs/heads/x.yml@refs/tags/v1", True, True),
        ("refs/pull/1/merge", True, True),
    ],
)
def test_foreign_call_of_up_is_refused_unless_attested_at_a_tag(
    workflow_ref: str, attested: bool, refuses: bool
) -> None:
    (step,) = workflow(ROOT, "up.yml")["jobs"]["caller"]["steps"]
    job = {"workflow_ref": f"acme/b/{WORKFLOWS}/up.yml@{workflow_ref}", "workflow_repository": "acme/b"}
    contexts = {"github": {"server_url": "https://github.com"}, "inputs": {"attested": attested}, "job": job}
    assert bool(evaluate(step["if"], contexts)) is refuses
