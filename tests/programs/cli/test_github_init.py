"""``slipway github init``: its commands make what its check asks for, and nothing less passes the check."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from cli.github import publishing_setup
from cli.github.publishing_setup import repository_of, steps
from cli.github.setup_step import FIRST, Step
from cli.main import main
from containers.errors import SlipwayError
from stacks.config.registries.acr import AcrRegistryConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.registries.gar import GarRegistryConfig
from stacks.config.stack_file import ROOT
from tests.fakes import google
from tests.fakes.aws.served import aws
from tests.fakes.cloud_commands import clouds
from tests.fakes.google import ACCOUNT, CLAIMS, FOREIGN, POOL, admits
from tests.helpers.every import every
from tests.helpers.json_shape import differing

ECR = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}
BACKEND = "s3://acme-pulumi/state?region=eu-west-1"
PROVIDER = "awskms://alias/pulumi?region=eu-west-1"


@pytest.fixture(scope="module")
def in_aws() -> Iterator[str]:
    """The address of an AWS. Each takes half a second to end."""
    with aws() as address:
        yield address


@pytest.fixture
def programs(tmp_path: Path, in_aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of `gh` and `aws`, with an empty GitHub and an empty AWS behind them."""
    requests.post(f"{in_aws}/moto-api/reset", timeout=10)
    for name, value in {
        "AWS_ENDPOINT_URL": in_aws,
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    with clouds(tmp_path, monkeypatch, "gh", "aws"):
        yield tmp_path


def run(listed: list[Step]) -> None:
    script = "\n".join([*FIRST, *(command for step in listed for command in step.commands)])
    subprocess.run(["sh"], input=script, text=True, check=True, capture_output=True)


def listed(*registries: EcrRegistryConfig) -> list[Step]:
    return [*steps("acme/images", registries, BACKEND, PROVIDER)]


def faults(wanted: list[Step]) -> dict[str, str]:
    return {step.title: fault for step in wanted if (fault := step.missing())}


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("registries", [[ECR], []], ids=["ecr", "state alone"])
def test_commands_make_all_that_the_check_asks_for(registries: list[dict[str, Any]]) -> None:
    wanted = listed(*map(EcrRegistryConfig.model_validate, registries))
    assert len(faults(wanted)) == len(wanted) == 10
    run(wanted)
    assert faults(wanted) == {}
    run([step for step in wanted if "aws " in step.commands[-1]])  # again, as after a failure in the middle
    assert faults(wanted) == {}


@pytest.mark.usefixtures("programs")
def test_commands_and_check_ask_github_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever works with a GitHub Enterprise Server too may have its name in GH_HOST."""
    monkeypatch.setenv("GH_HOST", "github.acme.example")
    words = ["github", "init", "--backend", BACKEND, "--repository", "acme/images", "--stack", "local"]
    assert main(words) == 0
    subprocess.run(["sh"], input=capsys.readouterr().out, text=True, check=True, capture_output=True)
    assert main([*words, "--check"]) == 0


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("options", [[], ["--check"]])
def test_steps_as_json_are_as_documented(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--backend", BACKEND, "--repository", "acme/images", "--stack", "local"]
    assert main(["github", "init", *words, *options, "--json"]) == len(options)
    document = json.loads(capsys.readouterr().out)
    assert differing("github", document) == []
    assert all(each["commands"] for each in document["steps"])
    assert all((each["missing"] is None) == (not options) for each in document["steps"])


def _any_branch(state: dict[str, Any]) -> None:
    state["repos/acme/images/environments/publish"] = {"deployment_branch_policy": None}


def _more_branches(state: dict[str, Any]) -> None:
    state["repos/acme/images/environments/publish/deployment-branch-policies"]["branch_policies"].append({"name": "*"})


def _tag_of_that_name(state: dict[str, Any]) -> None:
    [policy] = state["repos/acme/images/environments/publish/deployment-branch-policies"]["branch_policies"]
    policy["type"] = "tag"


def _branch_that_releases(state: dict[str, Any]) -> None:
    state["repos/acme/images/environments/release/deployment-branch-policies"]["branch_policies"] = [{"name": "v*"}]


def _writing_jobs(state: dict[str, Any]) -> None:
    state["repos/acme/images/actions/permissions/workflow"]["default_workflow_permissions"] = "write"


def _other_backend(state: dict[str, Any]) -> None:
    state["repos/acme/images/actions/variables/PULUMI_BACKEND_URL"]["value"] = "s3://other\x1b[2J"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_any_branch, "every branch may use it, so that a pull request can publish"),
        (_more_branches, 'policies: ["branch main", "branch *"], expected ["branch main"]'),
        (_tag_of_that_name, 'policies: ["tag main"], expected ["branch main"]'),
        (_branch_that_releases, 'policies: ["branch v*"], expected ["tag v*"]'),
        (_writing_jobs, 'permissions: {"default_workflow_permissions": "write", '),
        (_other_backend, r'PULUMI_BACKEND_URL: "s3://other\u001b[2J", expected "https://api.pulumi.com"'),
    ],
)
def test_check_names_what_differs_at_github(
    programs: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    wanted = [*steps("acme/images", [], "https://api.pulumi.com", releases=True)]
    run(wanted)
    store = programs / "github.json"
    state = json.loads(store.read_text())
    change(state)
    store.write_text(json.dumps(state))
    [fault] = faults(wanted).values()
    assert fault.startswith(said)


@pytest.mark.usefixtures("programs")
def test_check_refuses_a_role_that_others_may_take() -> None:
    wanted = listed(EcrRegistryConfig.model_validate(ECR))
    trust = next(step for step in wanted if step.title == "role slipway-publish-ID")
    loose = [line.replace(":environment:publish", ":*") for line in trust.commands]
    run([step if step is not trust else replace(trust, commands=tuple(loose)) for step in wanted])
    assert list(faults(wanted)) == ["role slipway-publish-ID"]


OTHER = {**ECR, "repository": ECR["repository"].replace("/ml", "/others")}


@pytest.mark.usefixtures("programs")
def test_repositories_in_one_account_of_aws_share_nothing() -> None:
    ours = listed(EcrRegistryConfig.model_validate(ECR))
    run(ours)
    theirs = [*steps("acme/others", [EcrRegistryConfig.model_validate(OTHER)], "https://api.pulumi.com")]
    run([step for step in theirs if step.title != "AWS trusts GitHub's tokens"])
    assert {each["RoleName"] for each in boto3.client("iam").list_roles()["Roles"]} == {
        "slipway-publish-4711",
        "slipway-publish-4712",
    }
    assert faults(ours) == faults(theirs) == {}


def _json_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    assert main(["github", "init", "--repository", "acme/images", "--stack", "local", *words, "--json"]) == 0
    return [each["commands"] for each in json.loads(capsys.readouterr().out)["steps"]]


@pytest.mark.usefixtures("programs")
def test_each_command_of_the_json_stands_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GH_HOST", "github.acme.example")
    for [command] in _json_commands(["--backend", BACKEND, "--secrets-provider", PROVIDER], capsys):
        subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert faults(listed()) == {}


@pytest.mark.parametrize("cloud", ["programs", "azure", "in_google"])
def test_no_command_of_the_json_goes_on_after_a_failure(
    cloud: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`gh` fails, and the shell that runs a command looks at no failure: nothing is made for an empty name."""
    request.getfixturevalue(cloud)
    (tmp_path / "gh").write_text("#!/bin/sh\nexit 1\n")
    backend = {"programs": BACKEND, "azure": AZURE_BACKEND, "in_google": GOOGLE_BACKEND}[cloud]
    ran = [
        subprocess.run(["bash", "-c", f"set +e; {command} || exit 3"], capture_output=True, check=False).returncode
        for [command] in _json_commands(["--backend", backend], capsys)
        if "gh " in command
    ]
    assert set(ran) == {3}
    if cloud == "programs":
        assert boto3.client("iam").list_roles()["Roles"] == []
    else:
        files = [tmp_path / name for name in ("azure.json", "google.json")]
        made = [json.loads(each.read_text()) for each in files if each.exists()]
        assert [name for state in made for name in ("apps", "pools", "accounts", "policies") if state.get(name)] == []


@pytest.mark.usefixtures("programs")
def test_provider_that_is_there_gets_the_audience(tmp_path: Path) -> None:
    """It is one for all repositories of an account. Any other failure ends the step."""
    issuer = "https://token.actions.githubusercontent.com"
    iam = boto3.client("iam")
    arn = iam.create_open_id_connect_provider(Url=issuer, ClientIDList=["of others"])["OpenIDConnectProviderArn"]
    step = next(step for step in listed(EcrRegistryConfig.model_validate(ECR)) if step.title.startswith("AWS trusts"))
    run([step])
    provider = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    assert provider["ClientIDList"] == ["of others", "sts.amazonaws.com"]
    (tmp_path / "aws").write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run(["bash", "-c", step.alone()], capture_output=True, check=False).returncode == 1


def _in_each_cloud() -> list[Step]:
    states = (BACKEND, AZURE_BACKEND, GOOGLE_BACKEND)
    return [step for backend in states for step in steps("acme/images", [], backend)]


def test_no_command_waits_in_a_pager() -> None:
    asking = 'printf %s "${AWS_PAGER-less}"'
    step = Step("a step", (asking,), (), str)
    for script in ("\n".join([*FIRST, asking]), step.alone()):
        assert subprocess.run(["sh", "-c", script], text=True, check=True, capture_output=True).stdout == ""


def test_commands_mean_the_same_in_zsh() -> None:
    """It reads `$account:role` as a modifier, and sets `123456789012ole`: "Modifiers" of zshexpn(1)."""
    assert [line for step in _in_each_cloud() for line in step.commands if re.search(r"\$\w+:[a-z]", line)] == []


_CUSTOMIZATION = "repos/acme/images/actions/oidc/customization/sub"


def _says(store: Path, prefix: str) -> None:
    """Have GitHub name the repository's jobs so."""
    state = json.loads(store.read_text()) if store.exists() else {}
    state[_CUSTOMIZATION] = {"use_default": True, "sub_claim_prefix": prefix}
    store.write_text(json.dumps(state))


def test_role_trusts_the_subject_that_github_says(programs: Path) -> None:
    wanted = listed(EcrRegistryConfig.model_validate(ECR))
    _says(programs / "github.json", "repo:acme@1/images@4711")  # as for a repository made since 2026-07-15
    run(wanted)
    role = boto3.client("iam").get_role(RoleName="slipway-publish-4711")["Role"]
    [statement] = role["AssumeRolePolicyDocument"]["Statement"]
    subject = statement["Condition"]["StringEquals"]["token.actions.githubusercontent.com:sub"]
    assert subject == "repo:acme@1/images@4711:environment:publish"
    assert faults(wanted) == {}
    _says(programs / "github.json", "repo:acme@1/pictures@4711")
    [(title, fault)] = faults(wanted).items()
    assert title == "role slipway-publish-ID"
    assert '"repo:acme@1/pictures@4711:environment:publish"' in fault


def test_subject_of_other_claims_is_refused(programs: Path) -> None:
    """The printed trust would be for jobs that there are not, and the check would call it right."""
    role = next(step for step in listed() if step.title == "role slipway-publish-ID")
    run([role])
    assert role.missing() == ""
    of_workflow = {
        "use_default": False,
        "include_claim_keys": ["job_workflow_ref"],
        "sub_claim_prefix": "repo:acme/images",
    }
    (programs / "github.json").write_text(json.dumps({_CUSTOMIZATION: of_workflow}))
    reset = f"gh api --method PUT {_CUSTOMIZATION} --field use_default=true"
    assert role.missing() == f"error: the repository has a subject of its own: {reset}"
    with pytest.raises(subprocess.CalledProcessError):
        run([role])


def test_policy_is_that_of_the_guide() -> None:
    registry = EcrRegistryConfig.model_validate(ECR)
    guide = json.loads((ROOT / "docs/guides/ecr-policy.json").read_text())["Statement"]
    ours = [*publishing_setup._statements([registry], "*", "https://api.pulumi.com", "")]
    for statement in ours:
        if statement["Resource"] != "*":
            assert statement.pop("Resource") == ["arn:aws:ecr:eu-west-1:*:repository/ml/*"]
    for statement in guide:
        if statement["Resource"] != "*":
            assert statement.pop("Resource") == "arn:aws:ecr:*:*:repository/ml/*"
    assert ours[0] == guide[0]
    assert ours[1:] == guide[1:]


def test_commands_quote_what_a_stack_says(tmp_path: Path) -> None:
    backend = f"https://x'; touch {tmp_path}/pwned; echo '$(touch {tmp_path}/pwned)"
    for name in ("gh", "aws"):
        (tmp_path / name).write_text("#!/bin/sh\ncat > /dev/null\n")
        (tmp_path / name).chmod(0o755)
    script = "\n".join(command for step in steps("acme/images", [], backend) for command in step.commands)
    subprocess.run(["sh"], input=script, text=True, check=True, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert not (tmp_path / "pwned").exists()


@every(
    "remote",
    [
        "https://github.com/acme/images",
        "https://github.com/acme/images.git\n",
        "git@github.com:acme/images.git",
        "ssh://git@github.com/acme/images",
        "acme/images",
    ],
)
def test_repository_is_that_of_the_remote(remote: str) -> None:
    assert repository_of(remote) == "acme/images"


@every("remote", ["", "https://gitlab.com/acme/images", "acme", "a/b/c", "acme/i;x", "-x/y"])
def test_repository_elsewhere_is_refused(remote: str) -> None:
    with pytest.raises(SlipwayError, match="name it with --repository OWNER/NAME"):
        repository_of(remote)


def test_registries_of_two_accounts_are_refused() -> None:
    other = {**ECR, "repository": "210987654321.dkr.ecr.eu-west-1.amazonaws.com/ml"}
    with pytest.raises(SlipwayError, match="123456789012, 210987654321 of AWS"):
        listed(*map(EcrRegistryConfig.model_validate, (ECR, other)))


@pytest.mark.usefixtures("in_google")
def test_check_without_a_login_says_how_to_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GH_TOKEN")
    trust = next(step for step in google_steps() if step.title == "pool slipway-publish-ID in Google")
    assert trust.missing() == "To get started with GitHub CLI, please run:  gh auth login"


def test_check_without_programs_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    whats = {fault.partition(" is not")[0] for fault in faults(listed()).values()}
    assert whats == {"unknown: gh", "unknown: aws", "unknown: sh"}


ACR = {"kind": "acr", "repository": "acmeimages.azurecr.io/images"}
AZURE_BACKEND = "azblob://pulumi?storage_account=acmestate"
APP = "33333333-0000-0000-0000-000000000000"
AZURE_PROVIDER = "azurekeyvault://acmekeys.vault.azure.net/keys/pulumi"


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with what an Azure has, empty, behind `az`; with an empty GitHub behind `gh`."""
    with clouds(tmp_path, monkeypatch, "gh", "az"):
        yield tmp_path / "azure.json"


def in_azure(backend: str = AZURE_BACKEND, provider: str = AZURE_PROVIDER) -> list[Step]:
    return [*steps("acme/images", [AcrRegistryConfig.model_validate(ACR)], backend, provider)]


@pytest.mark.usefixtures("azure")
def test_commands_for_azure_make_all_that_the_check_asks_for() -> None:
    wanted = in_azure()
    assert len(faults(wanted)) == len(wanted) == 12
    run(wanted)
    assert faults(wanted) == {}
    run(
        [step for step in wanted if any("az " in line for line in step.commands)]
    )  # again, as after a failure in the middle
    assert faults(wanted) == {}


def test_app_in_azure_trusts_the_subject_that_github_says(azure: Path) -> None:
    wanted = in_azure()
    _says(azure.with_name("github.json"), "repo:acme@1/images@4711")
    run(wanted)
    subject = json.loads(azure.read_text())["trust"][APP]["slipway-publish"]["subject"]
    assert subject == "repo:acme@1/images@4711:environment:publish"
    assert faults(wanted) == {}
    _says(azure.with_name("github.json"), "repo:acme@1/pictures@4711")
    [(title, fault)] = faults(wanted).items()
    assert title == "app slipway-publish-ID trusts GitHub's tokens"
    assert '"repo:acme@1/pictures@4711:environment:publish"' in fault


def test_repositories_in_one_directory_of_azure_share_nothing(azure: Path) -> None:
    ours = in_azure()
    run(ours)
    made = json.loads(azure.read_text())
    other = [AcrRegistryConfig.model_validate({**ACR, "repository": "acmeothers.azurecr.io/images"})]
    theirs = [*steps("acme/others", other, "https://api.pulumi.com")]
    run(theirs)
    state = json.loads(azure.read_text())
    assert {name: trust for name, trust in state["trust"].items() if name in made["trust"]} == made["trust"]
    assert len(state["trust"]) == len(state["apps"]) == 2
    assert faults(ours) == faults(theirs) == {}


def test_no_app_has_a_role_while_another_has_its_name(azure: Path) -> None:
    wanted = in_azure()
    run([step for step in wanted if step.title == "app slipway-publish-ID in Azure"])
    state = json.loads(azure.read_text())
    state["apps"].insert(0, {**state["apps"][0], "appId": "33333333-0000-0000-0000-00000000000f"})
    azure.write_text(json.dumps(state))
    with pytest.raises(subprocess.CalledProcessError):
        run(wanted)
    assert json.loads(azure.read_text())["roles"] == []
    fault = faults(wanted)["variable AZURE_CLIENT_ID"]
    assert "slipway-publish-4711: several apps have this name, delete what is not yours: 33333333" in fault


def test_app_without_the_id_in_its_name_is_anothers(azure: Path) -> None:
    wanted = in_azure()
    other = {"appId": "22222222-0000-0000-0000-000000000000", "displayName": "slipway-publish"}
    azure.write_text(json.dumps({"apps": [other], "principals": [], "trust": {}, "roles": []}))
    there = faults(wanted)
    assert there["app slipway-publish-ID in Azure"] == "there are 0 of this name, expected one"
    assert there["variable AZURE_CLIENT_ID"].endswith("there is no app of the name slipway-publish-4711")
    run(wanted)
    assert faults(wanted) == {}
    assert other in json.loads(azure.read_text())["apps"]


_MADE: dict[str, dict[str, str]] = {}
"""What a cloud's commands have made, by the name of its file: the cases of a test begin with it."""


def _made(file: Path, wanted: list[Step], change: Callable[[dict[str, Any]], None]) -> None:
    """Have a cloud, and GitHub, hold what the commands make, with a change in the cloud's file."""
    if file.name not in _MADE:
        run(wanted)
        _MADE[file.name] = {name: file.with_name(name).read_text() for name in ("github.json", file.name)}
    for name, text in _MADE[file.name].items():
        file.with_name(name).write_text(text)
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))


def _any_job(state: dict[str, Any]) -> None:
    state["trust"][APP]["slipway-publish"]["subject"] = "repo:acme/images:pull_request"


def _more_trust(state: dict[str, Any]) -> None:
    trust = state["trust"][APP]
    trust["more"] = {**trust["slipway-publish"], "name": "more", "subject": "repo:acme/other"}


def _owner(state: dict[str, Any]) -> None:
    state["roles"].append({**state["roles"][0], "roleDefinitionName": "Owner", "scope": "/subscriptions/1"})


def _other_registry(state: dict[str, Any]) -> None:
    state["roles"][0]["scope"] += "other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_any_job, "credentials: [{"),
        (_more_trust, "credentials: [{"),
        (_owner, "Owner on /subscriptions/1 is more than it needs"),
        (_other_registry, "AcrPush on /registries/acmeimages; AcrPush on /subscriptions/"),
    ],
)
def test_check_names_what_differs_in_azure(azure: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    wanted = in_azure()
    _made(azure, wanted, change)
    [fault] = faults(wanted).values()
    assert message in fault


@pytest.mark.usefixtures("azure")
def test_app_in_azure_has_the_roles_that_the_stacks_need() -> None:
    wanted = in_azure("https://api.pulumi.com", "")
    run(wanted)
    assert faults(wanted) == {}
    assert list(faults(in_azure())) == [
        "variable PULUMI_BACKEND_URL",
        "variable PULUMI_SECRETS_PROVIDER",
        "roles of app slipway-publish-ID",
        "variable AZURE_STORAGE_ACCOUNT",
    ]


@every(
    "backend, provider, message",
    [
        ("azblob://pulumi", "", "names no storage account: expected such as azblob://pulumi?storage_account=acme"),
        ("azblob://pulumi?storage_account=a'b", "", "names no storage account"),
        ("azblob://a$b?storage_account=acme", "", "expected such as s3://"),
        (AZURE_BACKEND, "azurekeyvault://acme'.vault.azure.net/keys/x", "expected such as s3://"),
    ],
)
def test_address_in_azure_mistaken_is_one_line(backend: str, provider: str, message: str) -> None:
    with pytest.raises(SlipwayError, match="^github init: --") as caught:
        in_azure(backend, provider)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


GAR = {"kind": "gar", "repository": "europe-docker.pkg.dev/acme-ml/images"}
GOOGLE_BACKEND = "gs://acme-pulumi/state"
GOOGLE_PROVIDER = "gcpkms://projects/acme-ml/locations/europe/keyRings/pulumi/cryptoKeys/state"


@pytest.fixture
def in_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with what a Google has, empty, behind `gcloud`; with an empty GitHub behind `gh`."""
    with clouds(tmp_path, monkeypatch, "gh", "gcloud"):
        yield tmp_path / "google.json"


OURS = "slipway-publish-4711/github"
"""The provider of the repository acme/images, in its pool."""


def google_steps(backend: str = GOOGLE_BACKEND, provider: str = GOOGLE_PROVIDER, **changed: str) -> list[Step]:
    return [*steps("acme/images", [GarRegistryConfig.model_validate({**GAR, **changed})], backend, provider)]


@pytest.mark.parametrize("registries", [[GAR], []], ids=["gar", "state alone"])
@pytest.mark.usefixtures("in_google")
def test_commands_for_google_make_all_that_the_check_asks_for(registries: list[dict[str, Any]]) -> None:
    wanted = [*steps("acme/images", map(GarRegistryConfig.model_validate, registries), GOOGLE_BACKEND, GOOGLE_PROVIDER)]
    assert len(faults(wanted)) == len(wanted) == 13
    run(wanted)
    assert faults(wanted) == {}
    run([step for step in wanted if step.commands[0].startswith("project=")])  # again, as after a failure
    assert faults(wanted) == {}


def test_google_trusts_the_jobs_that_publish_alone(in_google: Path) -> None:
    run(google_steps())
    state = json.loads(in_google.read_text())
    condition = state["providers"][OURS]["attributeCondition"]
    assert admits(condition, CLAIMS)
    assert [whose for whose, claims in FOREIGN.items() if admits(condition, {**CLAIMS, **claims})] == []
    assert admits(condition, {**CLAIMS, "sub": "repo:acme@1/images@4711:environment:publish"})  # since 2026-07-15
    for claim in ("repository_id", "environment", "ref"):
        assert not admits(condition, {name: value for name, value in CLAIMS.items() if name != claim})
    users = state["policies"][f"iam service-accounts {ACCOUNT}"]
    words = state["providers"][OURS]["attributeMapping"]["google.subject"].split(" + ")
    subject = "".join(CLAIMS.get(word.removeprefix("assertion."), word.strip("'")) for word in words)
    principal = f"principal://iam.googleapis.com/{POOL}/subject/{subject}"
    assert {(each["role"], *each["members"]) for each in users} == {("roles/iam.workloadIdentityUser", principal)}
    variables = json.loads(in_google.with_name("github.json").read_text())
    assert {path.rpartition("/")[2]: each["value"] for path, each in variables.items() if "/GOOGLE_" in path} == {
        "GOOGLE_WORKLOAD_IDENTITY_PROVIDER": google.PROVIDER,
        "GOOGLE_SERVICE_ACCOUNT": ACCOUNT,
    }


def test_repositories_in_one_project_of_google_share_nothing(in_google: Path) -> None:
    ours = google_steps()
    run(ours)
    made = json.loads(in_google.read_text())
    other = [GarRegistryConfig.model_validate({**GAR, "repository": "europe-docker.pkg.dev/acme-ml/others"})]
    theirs = [*steps("acme/others", other, "https://api.pulumi.com")]
    run(theirs)
    state = json.loads(in_google.read_text())
    for place in ("pools", "providers"):
        assert {name: state[place][name] for name in made[place]} == made[place]
        assert len(state[place]) == 2
    assert sorted(state["accounts"]) == [ACCOUNT, ACCOUNT.replace("4711", "4712")]
    assert faults(ours) == faults(theirs) == {}


def test_account_in_google_has_the_roles_that_the_stacks_need(in_google: Path) -> None:
    wanted = google_steps("https://api.pulumi.com", "")
    run(wanted)
    assert faults(wanted) == {}
    policies = json.loads(in_google.read_text())["policies"]
    assert policies.pop("artifacts repositories images") == [
        {"role": "roles/artifactregistry.writer", "members": [f"serviceAccount:{ACCOUNT}"]}
    ]
    assert [*policies] == [f"iam service-accounts {ACCOUNT}"]
    assert faults(google_steps())["roles of service account slipway-publish-ID"] == (
        "roles/cloudkms.cryptoKeyEncrypterDecrypter on kms keys state --keyring pulumi --location europe --project "
        "acme-ml; roles/storage.objectUser on storage buckets gs://acme-pulumi"
    )


def _any_repository(state: dict[str, Any]) -> None:
    state["providers"][OURS]["attributeCondition"] = "assertion.repository_owner == 'acme'"


def _repository_by_name(state: dict[str, Any]) -> None:
    provider = state["providers"][OURS]
    provider["attributeCondition"] = provider["attributeCondition"].partition(" && ")[2]


def _subject_of_another_claim(state: dict[str, Any]) -> None:
    state["providers"][OURS]["attributeMapping"] = {"google.subject": "assertion.actor"}


def _any_audience(state: dict[str, Any]) -> None:
    state["providers"][OURS]["oidc"]["allowedAudiences"] = ["https://github.com/evil"]


def _more_providers(state: dict[str, Any]) -> None:
    state["providers"]["slipway-publish-4711/more"] = {**state["providers"][OURS], "name": f"{POOL}/providers/more"}


def _switched_off(state: dict[str, Any]) -> None:
    state["providers"][OURS]["disabled"] = True


def _deleted_pool(state: dict[str, Any]) -> None:
    state["pools"]["slipway-publish-4711"]["state"] = "DELETED"


def _more_users(state: dict[str, Any]) -> None:
    members = f"principalSet://iam.googleapis.com/{POOL}/*"
    state["policies"][f"iam service-accounts {ACCOUNT}"].append(
        {"role": "roles/iam.workloadIdentityUser", "members": [members]}
    )


def _editor(state: dict[str, Any]) -> None:
    state["policies"]["projects acme-ml"] = [{"role": "roles/editor", "members": [f"serviceAccount:{ACCOUNT}"]}]


def _admin(state: dict[str, Any]) -> None:
    state["policies"]["artifacts repositories images"][0]["role"] = "roles/artifactregistry.repoAdmin"


_PAST = {"expression": "request.time < timestamp('2026-01-01T00:00:00Z')", "title": "for a while"}


def _expired(state: dict[str, Any]) -> None:
    state["policies"]["artifacts repositories images"][0]["condition"] = _PAST


def _expired_user(state: dict[str, Any]) -> None:
    state["policies"][f"iam service-accounts {ACCOUNT}"][0]["condition"] = _PAST


def _no_api(state: dict[str, Any]) -> None:
    state["apis"].remove("sts.googleapis.com")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_any_repository, "providers: [{"),
        (_repository_by_name, "providers: [{"),
        (_subject_of_another_claim, "providers: [{"),
        (_any_audience, "providers: [{"),
        (_more_providers, "providers: [{"),
        (_switched_off, "providers: [{"),
        (_deleted_pool, 'pool: ["DELETED", false], expected ["ACTIVE", false]'),
        (_more_users, "/workloadIdentityPools/slipway-publish-4711/* is more than it needs"),
        (_editor, "roles/editor on the project is more than it needs"),
        (_admin, "roles/artifactregistry.writer on artifacts repositories images --location europe"),
        (_no_api, "sts.googleapis.com"),
        (_expired, "roles/artifactregistry.writer under the condition 'for a while' on artifacts repositories images"),
        (_expired_user, "roles/iam.workloadIdentityUser under the condition 'for a while' of principal://"),
    ],
)
def test_check_names_what_differs_in_google(
    in_google: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    wanted = google_steps()
    _made(in_google, wanted, change)
    [fault] = faults(wanted).values()
    assert message in fault
    assert fault.isprintable()


@every(
    "backend, provider, message",
    [
        ("gs://acme$(id)", "", "expected such as s3://"),
        ("gs://", "", "expected such as s3://"),
        (GOOGLE_BACKEND, "gcpkms://projects/acme-ml/locations/europe/keyRings/pulumi", "expected such as s3://"),
        (GOOGLE_BACKEND, GOOGLE_PROVIDER + ";id", "expected such as s3://"),
    ],
)
def test_address_in_google_mistaken_is_one_line(backend: str, provider: str, message: str) -> None:
    with pytest.raises(SlipwayError, match="^github init: --") as caught:
        google_steps(backend, provider)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_registries_of_two_projects_of_google_are_refused() -> None:
    other = {**GAR, "repository": "europe-docker.pkg.dev/other-ml/images"}
    with pytest.raises(SlipwayError, match="projects acme-ml, other-ml of Google"):
        [*steps("acme/images", map(GarRegistryConfig.model_validate, (GAR, other)), "https://api.pulumi.com")]
